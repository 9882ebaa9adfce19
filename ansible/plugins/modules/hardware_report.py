#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Report what a machine is and has, before anything is installed on it. Changes nothing."""

import glob
import os
import re
import socket
import stat
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: hardware_report
short_description: Report a machine's processors, memory, GPUs, system, name and clock
description:
  - Asks C(slurmd -C) where it is installed, since the controller will get the same answer, and
    otherwise lscpu and /proc/meminfo. What is found is judged by C(muster.verify.hardware).
  - The action plugin of the same name adds between which two moments of the control machine the
    clock was read.
options:
  paths:
    description: Paths to report on.
    type: list
    elements: path
    default: []
  people:
    description: Logins that the machine should know, of a directory.
    type: list
    elements: str
    default: []
  groups:
    description: Groups that it should know, of a directory.
    type: list
    elements: str
    default: []
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Report this machine
  muster.slurm.hardware_report:
    paths: [/home, /dev/nvidia0]
"""

RETURN = r"""
report:
  description:
    - name, clock (seconds since the epoch), os (C(debian-12)), gpus (device files), paths (path ->
      directory, device, file or absent), and of the processors sockets, cores_per_socket,
      threads_per_core, memory_mib and source (slurmd or lscpu).
    - unknown has those of O(people) and O(groups), under these keys, that the machine does not know; null where it
      asks no directory.
  type: dict
  returned: always
"""

GPU_DEVICES = "/dev/nvidia[0-9]*"


def of_slurmd(text: str) -> dict[str, int | str]:
    """Return processors and memory from what C(slurmd -C) prints; KeyError if it is not that."""
    words = dict(re.findall(r"(\w+)=(\S+)", text))
    # Boards are a level that the definition does not have: their sockets are sockets.
    boards = int(words.get("Boards", 1))
    per_board = words["SocketsPerBoard"] if "SocketsPerBoard" in words else words["Sockets"]
    return {
        "sockets": boards * int(per_board),
        "cores_per_socket": int(words["CoresPerSocket"]),
        "threads_per_core": int(words["ThreadsPerCore"]),
        "memory_mib": int(words["RealMemory"]),
        "source": "slurmd",
    }


def of_lscpu(text: str, meminfo: str) -> dict[str, int | str]:
    """Return processors and memory from C(lscpu -p=CPU,CORE,SOCKET) and /proc/meminfo.

    The list of processors, not lscpu's summary: that gives the threads of the first core for all.
    """
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    # Where the kernel does not know a socket, as on some virtual machines, lscpu prints "-".
    places = [(row[2], row[1]) for row in rows]
    sockets = len({place[0] for place in places})
    cores = len(set(places))
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE))
    return {
        "sockets": sockets,
        "cores_per_socket": cores // sockets,
        # Where cores differ (fast ones with two threads, small ones with one) the smaller number.
        "threads_per_core": max(1, len(rows) // cores),
        "memory_mib": int(sizes["MemTotal"]) // 1024,
        "source": "lscpu",
    }


def processors(module: AnsibleModule) -> dict[str, int | str]:
    """Return what the machine has, by the best source there is."""
    slurmd = module.get_bin_path("slurmd")
    if slurmd:
        _, out, _ = run(["timeout", "20", slurmd, "-C"])
        try:
            return of_slurmd(out)
        except (KeyError, ValueError):
            pass  # such as a slurmd whose libraries are gone
    code, out, err = run(["lscpu", "-p=CPU,CORE,SOCKET"])
    if code != 0:
        module.fail_json(msg=f"lscpu: {err.strip()}; install util-linux on this host")
    with open("/proc/meminfo", encoding="ascii") as stream:
        return of_lscpu(out, stream.read())


def os_of(os_release: str) -> str:
    """Return system and version as the definition names them, such as debian-12."""
    words = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    # A release before its publication has no number.
    return f"{words.get('ID', 'unknown')}-{words.get('VERSION_ID', 'unknown')}"


def kind_of(path: str) -> str:
    """Return what lies at `path`: directory, device, file or absent."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "absent"
    if stat.S_ISDIR(mode):
        return "directory"
    return "device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "file"


def gpus() -> list[str]:
    """Return the device files of GPUs in the order of their numbers."""
    # Not /dev/nvidiactl, and not the folder /dev/nvidia-caps.
    numbered = [
        path for path in glob.glob(GPU_DEVICES) if path.removeprefix("/dev/nvidia").isdigit()
    ]
    return sorted(numbered, key=lambda path: int(path.removeprefix("/dev/nvidia")))


def asks_directory(nsswitch: str) -> bool:
    """Whether people are looked for in sssd, by the text of nsswitch.conf(5)."""
    return re.search(r"^passwd:[^#\n]*\bsss\b", nsswitch, re.MULTILINE) is not None


def unknown(database: str, names: list[str]) -> list[str]:
    """Return the names that the machine does not know as C(passwd) or C(group)."""
    if not names:
        return []
    _, out, _ = run(["timeout", "40", "getent", "--", database, *names])
    known = {line.partition(":")[0] for line in out.splitlines()}
    return [name for name in names if name not in known]


def of_directory(module: AnsibleModule) -> dict[str, list[str]] | None:
    """Return who of the people and groups is not known; None where no directory is asked."""
    try:
        with open("/etc/nsswitch.conf", encoding="utf-8") as stream:
            asked = asks_directory(stream.read())
    except FileNotFoundError:
        asked = False
    if not asked:
        return None
    return {
        "people": unknown("passwd", module.params["people"]),
        "groups": unknown("group", module.params["groups"]),
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path", "default": []},
            "people": {"type": "list", "elements": "str", "default": []},
            "groups": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    clock = time.time()
    with open("/etc/os-release", encoding="utf-8") as stream:
        system = os_of(stream.read())
    module.exit_json(
        changed=False,
        report={
            "clock": clock,
            "name": socket.gethostname(),
            "os": system,
            "gpus": gpus(),
            "paths": {path: kind_of(path) for path in module.params["paths"]},
            "unknown": of_directory(module),
            **processors(module),
        },
    )


if __name__ == "__main__":
    main()
