# SPDX-License-Identifier: Apache-2.0
"""What dpkg said on each host in this run of ansible-playbook.

Each task is a process of its own, so a reading is a file. Its folder is that of the run, which
Ansible makes for each run and removes at the end: no reading outlives its run.
"""

import hashlib
import json
from pathlib import Path

import ansible.constants


def keep(host: str, packages: dict[str, str]) -> None:
    """Keep package -> version of all that `host` has."""
    path = _path(host)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(json.dumps(packages), encoding="utf-8")


def reading(host: str) -> dict[str, str] | None:
    """Return what `host` has, None if nobody has asked it or something was installed since."""
    try:
        packages: dict[str, str] = json.loads(_path(host).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return packages


def drop(host: str) -> None:
    """Forget what `host` had."""
    _path(host).unlink(missing_ok=True)


def _path(host: str) -> Path:
    # Ansible makes the names of its constants when it is imported.
    folder = Path(getattr(ansible.constants, "DEFAULT_LOCAL_TMP"), "muster-packages")  # noqa: B009
    return folder / hashlib.sha256(host.encode()).hexdigest()
