"""A storage host and a node, booted once; the two roles run on them."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)
from vmkit import root
from vmkit.machine import Machine, free_port

from muster import storage, wiring

REPOSITORY = Path(__file__).resolve().parents[2]
PLAY_SECONDS = 480
ADDRESSES = {"storage1": "192.0.2.1", "node1": "192.0.2.2"}
GROUPS = {
    **{"controller": ["storage1"], "database": [], "login": ["storage1"], "storage": ["storage1"]},
    **{"compute": ["node1"], "cpu": ["node1"], "all": ["storage1", "node1"]},
}
CLUSTER: dict[str, Any] = {
    "name": "vm",
    "os": "debian-12",
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 512}},
    "partitions": {"main": {"nodes": ["cpu"], "default": True}},
    "storage": {
        "home": {"kind": "nfs", "path": "/home"},
        "apps": {"kind": "nfs", "path": "/apps", "own_disk": False, "cached": True},
        "data": {"kind": "nfs", "path": "/data", "own_disk": False},
        # Debian 12's kernel is slow at it, and right.
        "cache": {"device": "/dev/nvme1n1", "any_kernel": True},
    },
}


@dataclass
class Pair:
    """The two machines, and what the definition makes of them."""

    server: Machine
    client: Machine
    folder: Path
    exports: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, str]] = field(default_factory=list)

    def play(self, *options: str, **variables: Any) -> dict[str, dict[str, int]]:
        """Run the roles; return Ansible's counts by host (ok, changed, failed, ...)."""
        wanted = {
            "nfs_server_exports": self.exports,
            "nfs_client_mounts": self.mounts,
            "fscache_device": "/dev/nvme1n1",
            "fscache_any_kernel": True,
            **variables,
        }
        hosts = "".join(f"    {name}: {{ansible_host: {name}}}\n" for name in ADDRESSES)
        inventory = self.folder / "hosts.yml"
        inventory.write_text(
            f"all:\n  hosts:\n{hosts}  children: {{storage: {{hosts: {{storage1: }}}}}}\n"
            f"  vars: {{ansible_ssh_common_args: '-F {self.folder}/ssh_config'}}\n",
            encoding="utf-8",
        )
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [
                *(str(program), "--inventory", str(inventory), *options),
                *("--extra-vars", json.dumps(wanted), str(Path(__file__).with_name("site.yml"))),
            ],
            cwd=REPOSITORY,
            env=os.environ
            | {"ANSIBLE_CONFIG": f"{REPOSITORY}/ansible.cfg", "ANSIBLE_SSH_ARGS": "-C"},
            capture_output=True,
            text=True,
            timeout=PLAY_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {
            line.split()[0]: {key: int(count) for key, count in re.findall(r"(\w+)=(\d+)", line)}
            for line in done.stdout.splitlines()
            if re.match(r"\S+ +: ok=", line)
        }


@pytest.fixture(scope="session")
def booted() -> Iterator[Pair]:
    """Two machines that have booted."""
    missing = root.missing_programs()
    assert not missing, f"{', '.join(missing)} not installed; run `make vm`, which installs them"
    base = root.ensure(os.environ.get("RELEASE", "bookworm"))
    folder = Path(tempfile.mkdtemp(prefix="muster-vm-"))
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    server = Machine("storage1", 1, base, folder, f"udp={there},localaddr={here}", ["64M"])
    client = Machine("node1", 2, base, folder, f"udp={here},localaddr={there}", ["1G"])
    try:
        (folder / "ssh_config").write_text(server.ssh_config() + client.ssh_config())
        for machine in (server, client):
            machine.prepare()
            machine.start()
        for machine in (server, client):
            machine.wait()
        yield Pair(server, client, folder)
    finally:
        for machine in (server, client):
            machine.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def pair(booted: Pair) -> Pair:
    """The machines with the roles applied: /home on a disk of its own, /apps on the root disk."""
    booted.server.check("mke2fs -q -t ext4 /dev/nvme1n1 && mount /dev/nvme1n1 /home")
    definition = wiring.definition_of(CLUSTER, GROUPS)
    booted.exports = storage.exports(definition, ADDRESSES)
    booted.mounts = storage.mounts(definition, computes=True)
    recap = booted.play()
    assert all(counts["changed"] > 0 for counts in recap.values()), recap
    return booted
