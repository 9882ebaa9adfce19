"""A stand-in for the program `pulumi`: the one thing that is replaced."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

UP: dict[str, Any] = {
    "cluster": "slurm10",
    "project": "my-project",
    "zone": "europe-west4-a",
    "controller": "slurm10-controller",
    "logins": ["slurm10-login-0"],
    "addresses": {"slurm10-controller": "10.10.0.2"},
}
# What pulumi 3.259.0 says on stderr, and ends with 6.
NO_STACK = "error: no stack named 'slurm10' found"

Pulumi = Callable[..., dict[str, str]]


@pytest.fixture
def pulumi(tmp_path: Path) -> Pulumi:
    """Return `pulumi(outputs)` or `pulumi(error=...)`: the environment in which it answers so."""

    def installed(outputs: dict[str, Any] | None = None, error: str = "") -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "pulumi"
        program.write_text(
            f"#!{sys.executable}\n"
            "import pathlib, sys\n"
            f"with open({str(tmp_path / 'asked')!r}, 'a') as log: print(*sys.argv[1:], file=log)\n"
            f"sys.stderr.write({error!r})\n"
            f"sys.stdout.write({json.dumps(outputs) if outputs is not None else ''!r})\n"
            f"sys.exit({6 if error else 0})\n"
        )
        program.chmod(0o755)
        return environment(tmp_path, f"{folder}:{os.environ['PATH']}")

    return installed


@pytest.fixture
def no_pulumi(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without pulumi."""
    return environment(tmp_path, str(Path(sys.executable).parent))


def environment(home: Path, path: str) -> dict[str, str]:
    # NO_GCE_CHECK: google-auth looks for no metadata server.
    return {**os.environ, "HOME": str(home), "PATH": path, "NO_GCE_CHECK": "true"}
