"""The image of a machine on which the install halves of the roles have run already.

It is made like an image of the cloud, by ansible/image.yml on a container. Its tag is the digest of
what goes into it, so it is built once (in some two minutes), and again when an install half
changes. That the roles install on a bare machine is proven by this build and by the clusters that
are raised on bare machines.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.definition import PACKAGED_SLURM
from muster.definition.schema.software import STANDARD_LIBRARY
from muster.gcp import archive, install_halves
from muster_sandbox.containers import base_image, machines
from muster_sandbox.containers.podman import MachineError, exists, podman

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "ansible.cfg"
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


def files(release: str) -> dict[str, bytes]:
    """Return what image.yml reads, by its path, for a Debian release."""
    system = base_image.RELEASES[release]
    return install_halves.files(
        ROOT,
        os=system,
        slurm_version=PACKAGED_SLURM[system],
        nvidia=NO_DRIVER,
        module_packages=STANDARD_LIBRARY[system],
    )


def tag(release: str) -> str:
    """Return the name of the image of `release`: it changes with what goes into it."""
    digest = hashlib.sha256(archive.pack(files(release)))
    digest.update(
        Path(__file__).read_bytes() + CONFIG.read_bytes() + base_image.tag(release).encode()
    )
    return f"localhost/muster-installed-{release}:{digest.hexdigest()[:12]}"


def ensure(release: str) -> str:
    """Build the image of `release` unless it is there; return its name.

    Raises:
        muster_sandbox.containers.podman.MachineError: podman failed, or image.yml did.

    """
    name = tag(release)
    base_image.CACHE.mkdir(parents=True, exist_ok=True)
    with (base_image.CACHE / f"installed-{release}.lock").open("w") as lock:
        # Two runs that want the same image build it once: the second waits and finds it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not exists("image", name):
            build(release, name)
            forget_old(release)
    return name


def forget_old(release: str) -> None:
    """Remove all images of `release` but the latest two: another checkout may use one."""
    wanted = f"reference=localhost/muster-installed-{release}"
    shown = ("--filter", wanted, "--sort", "created", "--format", "{{.Repository}}:{{.Tag}}")
    for old in podman("images", *shown).split()[2:]:
        # One of which a container was made stays until the container is gone.
        with suppress(MachineError):
            podman("rmi", old)


def build(release: str, name: str) -> None:
    """Run image.yml on a machine, from a copy of what it reads, and keep the machine's image."""
    roles = [role for role in install_halves.roles(ROOT) if role not in NOT_HERE]
    with tempfile.TemporaryDirectory(prefix="muster-installed-") as folder:
        work = Path(folder)
        for path, content in files(release).items():
            (work / "bundle" / path).parent.mkdir(parents=True, exist_ok=True)
            (work / "bundle" / path).write_bytes(content)
        with one_machine(release, work / "fleet") as (fleet, host):
            play(
                [
                    *(str(Path(sys.executable).with_name("ansible-playbook")), "-i", f"{host},"),
                    *("--ssh-common-args", f"-F {fleet.ssh_config}"),
                    *("--extra-vars", json.dumps({"image_roles": roles}), "ansible/image.yml"),
                ],
                work / "bundle",
                {n: v for n, v in os.environ.items() if not n.startswith("ANSIBLE_")}
                | {
                    "ANSIBLE_CONFIG": str(CONFIG),
                    "ANSIBLE_ROLES_PATH": str(work / "bundle/roles"),
                    "ANSIBLE_NOCOLOR": "1",
                },
            )
            container = fleet.container(host)
            # From here on journald writes to memory.
            forget = f"journalctl --relinquish-var && rm -rf {REMOVED} && : >/etc/machine-id"
            machines.execute(container, "sh", "-c", forget)
            podman("stop", "--time", "30", container)
            # What is made of the image is none of this fleet's: `machines.down` would remove it.
            labels = (f"LABEL {label}=" for label in (machines.LABEL, machines.FOLDER_LABEL))
            changes = [part for label in labels for part in ("--change", label)]
            podman("commit", "--pause=false", *changes, container, name)


def play(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Run a playbook.

    Raises:
        MachineError: it failed, or took too long.

    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PLAY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"image.yml took longer than {PLAY_SECONDS} s") from error
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}"[-4000:]
        raise MachineError(f"image.yml failed on the machine of the image:\n{said}")


@contextmanager
def one_machine(release: str, folder: Path) -> Iterator[tuple[machines.Fleet, str]]:
    """A bare machine of a release, and what it is called; gone after the block."""
    # ssh shares connections by this name: two releases may be made at the same time.
    network, host = f"installed-{release}", f"image-{release}"
    machines.down(network)
    bare = machines.Machine(name=host, address="", release=release)
    fleet = machines.on_free_subnet(network, folder, [bare])
    try:
        machines.up(fleet)
        yield fleet, host
    finally:
        machines.down(network)
