"""The program muster-container (roles/containers/files), on stand-ins for skopeo and podman."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[4] / "roles/containers/files/usr/local/lib/muster"
sys.path.insert(0, str(LIBRARY))

SKOPEO = """#!/bin/sh
echo "$@" >>{log}
if [ -e {answer} ]; then cat {answer} >&2; exit 1; fi
[ "$1" = copy ] || {{ cat {source}/index.json; exit 0; }}
target=${{4#oci:}}
mkdir -p "${{target%:image}}" && cp -r {source}/. "${{target%:image}}"
"""
"""Copies the folder `source`, or fails with what is in `answer`."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.mkdir()
    return path


@pytest.fixture
def program(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The program; it returns its exit code."""
    from muster_containers import main, settings

    told = {"store": str(store), "mounts": [str(tmp_path)], "scratch": str(tmp_path / "scratch")}
    (tmp_path / "containers.json").write_text(json.dumps(told), encoding="utf-8")
    given = settings.read(str(tmp_path / "containers.json"))
    monkeypatch.setattr(settings, "read", lambda: given)
    (tmp_path / "bin").mkdir()
    skopeo = tmp_path / "bin/skopeo"
    skopeo.write_text(
        SKOPEO.format(
            log=tmp_path / "calls", answer=tmp_path / "answer", source=tmp_path / "source"
        )
    )
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return lambda *words: main.main(words)
