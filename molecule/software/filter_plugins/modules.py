"""What a definition gives the role, and files that its builds fetch."""

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from muster.definition import validate
from muster.render import lmod


def module_tree(
    cluster: dict[str, Any], groups: dict[str, list[str]], requirements: dict[str, str]
) -> dict[str, Any]:
    """Return the module tree as a mapping."""
    valid = validate(cluster, groups).cluster
    return asdict(lmod.render(valid.software, valid.storage.apps.path, valid.os, requirements))


def wheel(version: str) -> bytes:
    """Return a wheel of the package `greeting`, always the same."""
    info = f"greeting-{version}.dist-info"
    texts = {
        "greeting.py": f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    texts[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*texts, f"{info}/RECORD"])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return stream.getvalue()


def tool() -> bytes:
    """Return an archive with a folder around all of it, always the same."""
    program = b"#!/bin/sh\necho tool of an archive\n"
    member = tarfile.TarInfo("tool-1/bin/tool")
    member.size, member.mode = len(program), 0o755
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(member, io.BytesIO(program))
    return stream.getvalue()


def fetched(folder: str) -> dict[str, dict[str, str]]:
    """Return the files that builds fetch from `folder`: path -> text in base64, and digest."""
    files = {
        "greeting-1-py3-none-any.whl": wheel("1"),
        "greeting-2-py3-none-any.whl": wheel("2"),
        "tool-1.tar": tool(),
    }
    return {
        f"{folder}/{name}": {
            "base64": base64.b64encode(content).decode(),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in files.items()
    }


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"module_tree": module_tree, "fetched": fetched}
