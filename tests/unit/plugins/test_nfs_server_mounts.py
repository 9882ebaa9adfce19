"""Which mounts of the host the role nfs_server refuses to serve, by what findmnt says of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

VARIABLES = Path(__file__).resolve().parents[3] / "roles/nfs_server/vars/main.yml"


def refused(name: str, mounts: dict[str, str]) -> list[str]:
    """Return a list of the role's; `mounts`: options of the mounts by their paths."""
    found = [
        {"target": path, "fsroot": "/", "maj:min": f"254:{number}", "options": options}
        for number, (path, options) in enumerate(mounts.items())
    ]
    loader = DataLoader()  # type: ignore[no-untyped-call]
    variables: dict[str, Any] = {
        **loader.load_from_file(str(VARIABLES), trusted_as_template=True),
        "nfs_server_exports": [{"path": path} for path in mounts if path != "/"],
        "__nfs_server_mounts": {"stdout": json.dumps({"filesystems": found})},
    }
    templar = Templar(loader=loader, variables=variables)
    said: list[str] = templar.template(variables[f"__nfs_server_{name}"])
    return said


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ("rw,nosuid,nodev,relatime", False),
        ("rw,nodev,nosuid,noexec", False),
        ("rw,relatime", True),
        ("rw,nosuid", True),
        ("rw,nodev,prjquota", True),
    ],
)
def test_programs_that_nodes_leave_do_not_run_as_their_owner(
    options: str, is_refused: bool
) -> None:
    """Root of a node is any user and group but root there: also slurm, mysql and group disk."""
    mounts = {"/": "rw,relatime", "/home": options, "/apps": "rw,nosuid,nodev"}
    assert refused("unsafe", mounts) == (["/home"] if is_refused else [])
    assert refused("shared", mounts) == []
