"""The image of a machine on which the install halves of the roles have run already.

As an image of the cloud: ansible/image.yml, on a container. Its tag is the digest of what goes into
it, so it is built once (a minute and a half), and anew when an install half changes. What installs
on a bare machine is proven where it is built, and by the clusters that are raised on bare ones.
"""

import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.cloud import archive, installhalves
from muster.cluster import PACKAGED_SLURM
from muster.containers import image, machines
from muster.containers.podman import MachineError, exists, podman

ROOT = Path(__file__).resolve().parents[1]
PLAY_SECONDS = 900

NO_DRIVER = {
    "branch": 0,
    "module": "",
    "packages": [],
    "fabric_packages": [],
    "components": [],
    "repository": "",
    "kernel_packages": [],
}
"""Of the role nvidia_driver: machines of tests have no GPUs that a driver could drive."""

NOT_HERE = {"cloud_vm", "cloud_node"}
"""Roles whose units wait at each boot for the metadata server of a cloud."""

REMOVED = (
    "/etc/munge/munge.key /etc/ssh/ssh_host_* /root/.ansible /root/.ssh /var/lib/dbus/machine-id "
    "/var/lib/systemd/random-seed /var/log/journal/*"
)
"""Identities: each machine has its own."""


def bundle(release: str) -> bytes:
    """Return the archive of what image.yml reads, for a Debian release."""
    system = image.RELEASES[release]
    return archive.pack(
        installhalves.files(ROOT, os=system, slurm_version=PACKAGED_SLURM[system], nvidia=NO_DRIVER)
    )


def ensure(release: str) -> str:
    """Build the image of `release` unless it is there; return its name.

    Raises:
        muster.containers.podman.MachineError: podman failed, or image.yml did.

    """
    content = bundle(release)
    digest = hashlib.sha256(content + Path(__file__).read_bytes())
    digest.update(image.ensure(release).encode())
    name = f"localhost/muster-installed-{release}:{digest.hexdigest()[:12]}"
    with (image.CACHE / f"installed-{release}.lock").open("w") as lock:
        # Two runs that want the same image build it once: the second waits and finds it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not exists("image", name):
            build(release, content, name)
    return name


def build(release: str, content: bytes, name: str) -> None:
    """Run image.yml of a bundle on a machine, and keep it under a name."""
    roles = [role for role in installhalves.roles(ROOT) if role not in NOT_HERE]
    with tempfile.TemporaryDirectory(prefix="muster-installed-") as folder:
        work = Path(folder)
        with tarfile.open(fileobj=io.BytesIO(content)) as packed:
            packed.extractall(work / "bundle", filter="data")
        with one_machine(release, work / "fleet") as (fleet, host):
            done = subprocess.run(
                [
                    *(str(Path(sys.executable).with_name("ansible-playbook")), "-i", f"{host},"),
                    *("--ssh-common-args", f"-F {fleet.ssh_config}"),
                    *("--extra-vars", json.dumps({"image_roles": roles}), "ansible/image.yml"),
                ],
                cwd=work / "bundle",
                env=os.environ
                | {
                    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                    "ANSIBLE_ACTION_PLUGINS": str(work / "bundle/ansible/plugins/action"),
                    "ANSIBLE_LIBRARY": str(work / "bundle/ansible/plugins/modules"),
                    "ANSIBLE_MODULE_UTILS": str(work / "bundle/ansible/plugins/module_utils"),
                    "ANSIBLE_ROLES_PATH": str(work / "bundle/roles"),
                    "ANSIBLE_NOCOLOR": "1",
                },
                capture_output=True,
                text=True,
                timeout=PLAY_SECONDS,
                check=False,
            )
            if done.returncode != 0:
                raise MachineError(f"image.yml on {release}: {done.stdout[-4000:]}")
            container = fleet.container(host)
            # From here on journald writes to memory.
            forget = f"journalctl --relinquish-var && rm -rf {REMOVED} && : >/etc/machine-id"
            machines.execute(container, "sh", "-c", forget)
            podman("stop", "--time", "30", container)
            podman("commit", "--pause=false", container, name)


@contextmanager
def one_machine(release: str, folder: Path) -> Iterator[tuple[machines.Fleet, str]]:
    """A bare machine of a release, and what it is called; gone after the block."""
    network, host = f"installed-{release}", "image"
    machines.down(network)
    bare = machines.Machine(name=host, address="", release=release)
    fleet = machines.on_free_subnet(network, folder, [bare])
    try:
        machines.up(fleet)
        yield fleet, host
    finally:
        machines.down(network)
