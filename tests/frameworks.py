"""PyTorch and TensorFlow as docs/software.md adds them, for clusters that tests raise.

Hosts that tests raise install Python packages from a folder, with no index: this machine downloads
the wheels once.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from documentation import ROOT, Page

from muster_sandbox.containers.base_image import CACHE

PAGE = Page(ROOT / "docs/software.md")
REQUIREMENTS = ROOT / "examples/software"
"""Files with all packages of an environment, and their hashes."""

UV = ROOT / "roles/software/files/usr/local/lib/muster/uv.txt"
"""The version of uv that hosts get where environments are built."""

DOWNLOAD_SECONDS = 900

_LOSS = re.compile(r"^(\S+): (?:worker|process) \d+ of (\d+), loss (\d\S*)$", re.MULTILINE)
"""What each worker of the examples prints at its end."""


def modules(having: str = "libs/python/tensorflow") -> dict[str, Any]:
    """Return `software.modules` of the page's definition that has this module."""
    found = [yaml.safe_load(block.text) for block in PAGE.blocks("yaml")]
    [wanted] = [
        definition["cluster"]["software"]["modules"]
        for definition in found
        if having in definition["cluster"]["software"]["modules"]
    ]
    return dict(wanted)


def wheels(requirements: Path, python: str) -> Path:
    """Return a folder with the wheels of a file of requirements, for a version of Python: `3.11`.

    They are downloaded once, into a folder named by the digest of all that they depend on.
    """
    text = requirements.read_bytes()
    digest = hashlib.sha256(f"{python}\n".encode() + text).hexdigest()[:12]
    folder = CACHE / "wheels" / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        # Two runs that want the same download once: the second waits and finds them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_suffix(".new")
            shutil.rmtree(partial, ignore_errors=True)
            words = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
            # The file has all of them; pip would ask for what this interpreter's version needs.
            words += ["--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:"]
            words += [f"--python-version={python}", "--dest", partial, "-r", requirements]
            subprocess.run(words, check=True, timeout=DOWNLOAD_SECONDS)
            partial.rename(folder)
    return folder


def from_folder(requirements: Path, folder: str) -> str:
    """Return a file of requirements whose packages are in a folder of the host that builds."""
    return f"--no-index\n--find-links {folder}\n{requirements.read_text(encoding='utf-8')}"


def losses(output: str) -> dict[str, str]:
    """Return the loss at the end of an example by the host of each worker.

    Workers that have not found each other train alone, and say so by their number: they fail.
    """
    found = _LOSS.findall(output)
    assert found, output
    assert {int(workers) for _, workers, _ in found} == {len(found)}, output
    return {host: loss for host, _, loss in found}
