"""SLURM's daemons in one container, on files that Muster rendered.

slurmd reports the definition's cores and memory as its own (config_overrides); each node is a
slurmd in its own namespaces, with its name, address and spool folder.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import installed
import pytest
from conftest import CGROUP

from muster_sandbox.containers.podman import MachineError, exists, podman, ulimits

ADA = ["setpriv", "--reuid=ada", "--regid=ada", "--init-groups", "env", "--chdir=/home/ada"]
SECONDS = 60
CONTROLLER = "lab-access"

# NoInAddrAny: each slurmd listens on its own address, all on the usual port.
EMULATED_SLURM = {
    "SlurmdParameters": "config_overrides",
    "CommunicationParameters": "NoInAddrAny",
}
EMULATED_CGROUP = {"IgnoreSystemd": True} if CGROUP == "v2" else {"CgroupPlugin": "cgroup/v1"}

# What these tests need of the roles munge, users, slurm, health, scratch and mail besides packages:
# those are in the image.
PREPARE = """
groupadd --gid 20000 ml-users
useradd --uid 20001 --create-home --groups ml-users ada
install -d -o munge -g munge /run/munge
setpriv --reuid=munge --regid=munge --clear-groups mungekey --create
setpriv --reuid=munge --regid=munge --init-groups munged
install -d -o slurm -g slurm /run/slurmctld /var/lib/slurm/slurmctld /var/log/slurm
install -m 0755 /dev/null /usr/local/sbin/muster-mail
printf '#!/bin/sh\\n' >/usr/local/sbin/muster-health
chmod 0755 /usr/local/sbin/muster-health
install -D -m 0755 /usr/local/sbin/muster-health /etc/slurm/prolog.d/50-muster-health
install -D -m 0755 /usr/local/sbin/muster-health /etc/slurm/epilog.d/60-muster-scratch
install -D -m 0755 /usr/local/sbin/muster-health /usr/local/lib/muster/task-prolog
# Debian's has a glob, which 24.11 calls an error.
rm -f /etc/slurm/plugstack.conf
number=1
for node in "$@"; do
  ip address add 198.51.100.$number/32 dev lo
  echo "198.51.100.$number $node" >>/etc/hosts
  number=$((number + 1))
done
"""

SLURMD = """
hostname "$1"
mkdir -p /var/spool/slurmd /run/slurm
mount -t tmpfs none /var/spool/slurmd
mount -t tmpfs none /run/slurm
exec slurmd -D --conf-server lab-access >/var/log/slurm/$1.log 2>&1
"""


@dataclass(frozen=True)
class Emulation:
    """The container of one release."""

    name: str
    release: str
    nodes: tuple[str, ...]

    def run(self, *command: str) -> str:
        """Run a command to its end; return what it printed, errors included."""
        return podman("exec", self.name, "sh", "-c", 'exec "$@" 2>&1', "sh", *command)

    def start(self, *command: str) -> None:
        """Start a daemon."""
        podman("exec", "--detach", self.name, *command)

    def starts_slurmctld(self, log: str) -> None:
        """Start slurmctld and return when it answers."""
        command = "exec setpriv --reuid=slurm --regid=slurm --init-groups slurmctld -D"
        self.start("sh", "-c", f"{command} >{log} 2>&1")
        wait_for(lambda: " is UP" in self.run("scontrol", "ping"), lambda: self.run("cat", log))

    def starts_slurmds(self) -> None:
        """Start all nodes and return when they wait for jobs."""
        for node in self.nodes:
            self.start("unshare", "--mount", "--uts", "sh", "-ec", SLURMD, "sh", node)
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        logs = " ".join(f"/var/log/slurm/{node}.log" for node in self.nodes)
        wait_for(
            lambda: sum(map(int, self.run(*idle).split())) == len(self.nodes),
            lambda: self.run("sh", "-c", f"sinfo --Node --long; tail {logs}"),
        )


def wait_for(done: Callable[[], bool], what: Callable[[], str]) -> None:
    """Return when `done` holds; fail with the text of `what` after the timeout."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if done():
                return
        except MachineError:
            pass  # a client that reaches no daemon yet exits with 1
        time.sleep(0.1)
    pytest.fail(f"not within {SECONDS} s: {what()}")


@contextmanager
def emulated(
    name: str, release: str, files: Mapping[str, str], nodes: Sequence[str], *, seconds: int = 900
) -> Iterator[Emulation]:
    """Make the container of a release, with the files in /etc/slurm, without daemons.

    After `seconds` it ends by itself, even if its tests are killed.
    """
    lab = Emulation(f"{name}-{release}", release, tuple(nodes))
    if exists("container", lab.name):
        podman("rm", "--force", "--time", "0", lab.name)
    try:
        podman(
            *("run", "--detach", "--rm", "--name", lab.name, "--hostname", CONTROLLER),
            *("--privileged", *ulimits(), installed.ensure(release)),
            # Bash takes the exit status of orphans: two processes of each job are left as such.
            *("bash", "-c", f"sleep {seconds} & wait"),
        )
        podman("exec", lab.name, "sh", "-ec", PREPARE, "sh", *nodes)
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                (Path(folder) / file).write_text(content)
            podman("cp", f"{folder}/.", f"{lab.name}:/etc/slurm")
        yield lab
    finally:
        if exists("container", lab.name):
            podman("rm", "--force", "--time", "0", lab.name)
