"""A storage host and its clients: booted, on one network, configured by the roles."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmkit import root
from vmkit.machine import Machine, free_port

from muster import secrets
from muster_sandbox.containers import base_image

REPOSITORY = Path(__file__).resolve().parents[3]
RELEASE = os.environ.get("RELEASE", "bookworm")
"""Of the machines."""

STORAGE = "file_systems,nfs_server,fscache,nfs_client,ceph_client"
ROLES = f"munge,{STORAGE},health,scratch,slurmctld,slurmd"
"""The roles that depend on a kernel. A task takes seconds on an emulated machine, and containers
are enough for the other roles."""

CLUSTER: dict[str, Any] = {
    "name": "vm",
    "os": base_image.RELEASES[RELEASE],
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 512}},
    "partitions": {"main": {"nodes": ["cpu"], "default": True}},
}
"""The definition without storage."""

PLAY_SECONDS = 900
"""Timeout of a run of these, on two emulated machines."""

SERVER = root.MACHINES[0]


def names(clients: int) -> list[str]:
    """Return the names of the machines, the server's first; their order gives the addresses."""
    return list(root.MACHINES[: clients + 1])


def addresses(clients: int) -> dict[str, str]:
    """Return the address of each machine in the cluster's network."""
    return {name: f"192.0.2.{number}" for number, name in enumerate(names(clients), start=1)}


@dataclass
class Site:
    """The machines and the inventory with which site.yml configures them."""

    server: Machine
    clients: list[Machine]
    folder: Path

    @property
    def client(self) -> Machine:
        """The first client: the only one in tests."""
        return self.clients[0]

    @property
    def machines(self) -> list[Machine]:
        """All, the server first."""
        return [self.server, *self.clients]

    @property
    def inventory(self) -> Path:
        """Its folder."""
        return self.folder / "inventory"

    def in_slurm(self) -> tuple[str, str]:
        """SLURM's state and reason of the client; the reason is "none" while it is in service."""
        shown = self.server.ssh("sinfo --noheader --Node --format='%T|%E'").stdout.strip()
        state, _, reason = shown.partition("|")
        # Without accounting SLURM 24.11 keeps showing the last reason.
        return state, "none" if state in ("idle", "allocated") else reason

    def define(self, cluster: dict[str, Any], *, database: bool = False, **secret: str) -> None:
        """Write the definition that the next play applies, and secrets that can't be generated.

        `database`: the server is in that group. Without a size in `cluster` its state stays on its
        disk, which is small.
        """
        storage = {"state_gib": None, **cluster.get("storage", {})}
        text = json.dumps({"cluster": cluster | {"storage": storage}})
        variables = self.inventory / "group_vars/all"
        variables.mkdir(parents=True, exist_ok=True)
        (variables / "cluster.yml").write_text(text, encoding="utf-8")
        (self.inventory / "hosts.yml").write_text(json.dumps({"all": self._hosts(database)}))
        secrets.make(self.inventory)
        with secrets.path_of(self.inventory).open("a", encoding="utf-8") as file:
            file.writelines(f"  {name}: {value}\n" for name, value in secret.items())

    def _hosts(self, database: bool) -> dict[str, Any]:
        clients = {machine.name: {} for machine in self.clients}
        server: dict[str, Any] = {"hosts": {SERVER: {}}}
        return {
            "hosts": {
                name: {"ansible_host": address} for name, address in addresses(len(clients)).items()
            },
            "vars": {
                "ansible_user": "root",
                "ansible_ssh_common_args": f"-F {self.folder}/ssh_config",
            },
            "children": {
                **{"controller": server, "login": server, "storage": server},
                "database": server if database else {},
                "compute": {"children": {"cpu": {"hosts": clients}}},
            },
        }

    def play(self, *options: str, roles: str = ROLES) -> set[str]:
        """Run some roles of site.yml; return the changed tasks as `host: task`."""
        done = self._played(*options, roles=roles)
        assert done.returncode == 0, done.stdout + done.stderr
        changed, task = set(), ""
        for line in done.stdout.splitlines():
            if match := re.match(r"TASK \[(.*)\]", line):
                task = match[1]
            elif match := re.match(r"changed: \[(\S+)\]", line):
                changed.add(f"{match[1]}: {task}")
        return changed

    def failed(self, *options: str, roles: str) -> str:
        """Run some roles of site.yml, which must fail; return the output."""
        done = self._played(*options, roles=roles)
        # ansible-playbook: a task failed on a host.
        assert done.returncode == 2, done.stdout + done.stderr
        return done.stdout

    def _played(self, *options: str, roles: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("ansible-playbook")
        return subprocess.run(
            [
                *(str(program), "--inventory", str(self.inventory), "--tags", roles),
                *(*options, "ansible/site.yml"),
            ],
            cwd=REPOSITORY,
            env=os.environ | {"ANSIBLE_SSH_ARGS": "-C", "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            timeout=PLAY_SECONDS,
            check=False,
        )


@contextmanager
def booted(
    clients: int = 1, *, alone: bool = True, cores: int = 1, disk: str = "64M"
) -> Iterator[Site]:
    """Boot a server and its clients, and switch them off at the end.

    `alone`: they only reach each other; else also containers of this machine. `cores`: of each
    client. `disk`: size of the server's empty disk; what is written to it counts here.

    Raises:
        vmkit.machine.VmError: a machine did not boot.

    """
    missing = root.missing_programs()
    assert not missing, f"{', '.join(missing)} not installed; run `make vm`, which installs them"
    base = root.ensure(RELEASE)
    folder = Path(tempfile.mkdtemp(prefix="muster-vm-"))
    hub, ends = _wires(clients)
    server = Machine(SERVER, 1, base, folder, hub, [disk], alone)
    site = Site(server, [], folder)
    for number, name in enumerate(names(clients)[1:], start=2):
        wire = [ends[number - 2]]
        site.clients.append(Machine(name, number, base, folder, wire, ["1G"], alone, cores))
    try:
        (folder / "ssh_config").write_text(
            "".join(machine.ssh_config() for machine in site.machines)
        )
        for machine in site.machines:
            machine.prepare()
            machine.start()
        for machine in site.machines:
            machine.wait()
        yield site
    finally:
        for machine in site.machines:
            machine.stop()
        shutil.rmtree(folder)


def _wires(clients: int) -> tuple[list[str], list[str]]:
    """QEMU's options for a star network: a hub at the server, and a line to each client."""
    hub, ends = ["hubport,id=wire,hubid=0"], []
    for number in range(clients):
        here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
        hub += [
            f"socket,id=line{number},udp={there},localaddr={here}",
            f"hubport,id=port{number},hubid=0,netdev=line{number}",
        ]
        ends.append(f"socket,id=wire,udp={here},localaddr={there}")
    return hub, ends
