"""A Ceph cluster in a container, raised by the role, for machines whose kernel mounts it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.definition import load
from muster.render import ceph
from muster_sandbox.containers import machines
from muster_sandbox.containers.podman import check_machine, podman
from muster_sandbox.demo.instance import Instance

REPOSITORY = Path(__file__).resolve().parents[3]
NAME = "muster-vm-ceph"
HOST, ADDRESS = "ceph1", "10.214.47.10"
USER = "muster-compute"
PLAY_SECONDS = 900


@dataclass(frozen=True)
class Ceph:
    """What its clients need."""

    fsid: str
    key: str
    """The key of the client USER."""

    address: str = ADDRESS
    """Of its monitor."""

    def run(self, *words: str) -> str:
        """Run a command in the container."""
        return podman("exec", f"{NAME}-{HOST}", *words, timeout=60).strip()

    def quota(self, path: str, size: int) -> None:
        """Set a folder's quota, in bytes, as the cluster's administrator."""
        program = (
            "import cephfs; files = cephfs.LibCephFS(conffile='/etc/ceph/ceph.conf', "
            "auth_id='admin'); files.mount(); "
            f"files.setxattr({path!r}, 'ceph.quota.max_bytes', b'{size}', 0); files.shutdown()"
        )
        self.run("python3", "-c", program)


@contextmanager
def raised(release: str) -> Iterator[Ceph]:
    """Raise it, and remove it at the end; an earlier run's remains are removed first.

    Raises:
        muster_sandbox.containers.podman.MachineError: this machine can't run containers.

    """
    check_machine()
    instance = Instance(REPOSITORY / "build" / NAME)
    machines.down(NAME)
    machines.remove_folder(instance.folder)
    try:
        instance.create(Path(__file__).resolve().parents[1] / "ceph", release)
        machines.up(instance.fleet())
        program = Path(sys.executable).with_name("ansible-playbook")
        words = ["--inventory", str(instance.folder), "--tags=ceph_cluster", "ansible/site.yml"]
        done = subprocess.run(
            [str(program), *words],
            cwd=REPOSITORY,
            env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            timeout=PLAY_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        fsid = ceph.built(load(instance.folder), HOST, {HOST: ADDRESS})["fsid"]
        yield Ceph(fsid, Ceph(fsid, "").run("ceph", "auth", "get-key", f"client.{USER}"))
    finally:
        machines.down(NAME)
        machines.remove_folder(instance.folder)
