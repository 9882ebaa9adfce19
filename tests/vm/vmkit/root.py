"""The disk of a virtual machine: Debian with its kernel, made by mmdebstrap, kept by digest.

What the roles' install halves install is in it, as in an image of the cloud: emulated, apt would
take minutes. No registry is asked, and nothing but Debian's archive.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from muster.definition.schema.software import STANDARD_LIBRARY
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import run

ROOT = Path(__file__).resolve().parents[3]
RECIPE = Path(__file__).with_name("recipe")

ROLES = (
    *("munge", "nfs_server", "fscache", "nfs_client", "projects", "health", "login_limits"),
    "containers",
)
CEPH = ["ceph-common"]
"""Of the role ceph_client, for the kernel's client."""

SLURM = ["slurmctld", "slurmd", "slurm-client", "libpam-slurm-adopt"]
"""Of the roles slurmctld and slurmd, who ask for them by version."""

MPI = {"bookworm": ["libpmix-dev"]}
"""Of the role slurm, by release: what SLURM 22.05 opens for `srun --mpi=pmix`."""

PACKAGES = [
    "autofs",  # of the role lmod, where releases are packed
    "dbus",
    "iproute2",
    "kmod",
    "linux-image-cloud-amd64",  # ext4 and NVMe are built in, so no initrd is needed
    "lmod",
    "mariadb-server",  # of the role mariadb
    "netbase",
    "nftables",  # with which tests cut a wire for one service
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "squashfs-tools",  # of the role software, where releases are packed
    "strace",
    "systemd",
    "systemd-sysv",
    "udev",
    "xfsprogs",  # of tests that serve a disk which an administrator made
]

# Units that take seconds of an emulated boot and do nothing for a test.
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer "
    "e2scrub_reap.service getty@tty1.service serial-getty@ttyS0.service "
    "systemd-binfmt.service"
)

# As on a host of which Ansible asked the package: no daemon starts before its role configured it.
SILENT = (
    "autofs.service mariadb.service munge.service nfs-server.service rpcbind.service "
    "rpcbind.socket slurmctld.service slurmd.service"
)

MACHINES = ("storage1", "node1", "node2", "node3", "node4")
"""Names of the machines that may be made from one disk; their numbers begin with 1."""

NETWORK = """\
# The cluster's network, and a second one on the same wire that is nobody's.
[Match]
MACAddress=52:54:00:00:01:{number:02x}

[Network]
Address=192.0.2.{number}/24
Address=198.51.100.{number}/24
"""

SIZE = "6G"
BUILD_SECONDS = 600


@dataclass(frozen=True)
class Root:
    """A built disk and what goes with it."""

    disk: Path
    kernel: Path
    key: Path
    """Private key of the one who may log in as root."""
    host_key: str
    """Public host key of all machines made from it."""


def packages_of(release: str) -> list[str]:
    """Return all packages of the disk of a release."""
    library = STANDARD_LIBRARY[base_image.RELEASES[release]]  # of the role lmod
    return [*PACKAGES, *MPI.get(release, []), *library, *installed_by_roles()]


def installed_by_roles() -> list[str]:
    """Return the packages that the roles' install halves ask for."""
    tasks = [
        task
        for role in ROLES
        for task in yaml.safe_load((ROOT / f"roles/{role}/tasks/install.yml").read_text())
    ]
    # Some are in a block, with what is said when they can't be installed.
    tasks += [task for block in tasks for task in block.get("block", [])]
    asked = [task.get("muster.slurm.managed_packages", {}) for task in tasks]
    names = [name for packages in asked for name in packages.get("names", [])]
    return [*names, *CEPH, *SLURM]


def digest(release: str) -> str:
    """Return what changes with anything that goes into the disk."""
    found = hashlib.sha256()
    found.update(" ".join([release, *packages_of(release)]).encode())
    found.update(Path(__file__).read_bytes() + base_image.proxy_settings().encode())
    for recipe in (RECIPE, base_image.RECIPE / "usr"):
        for path in base_image.files(recipe):
            found.update(str(path.relative_to(recipe)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


def ensure(release: str) -> Root:
    """Build the disk of `release` unless it is there: a minute or two, 1 GB.

    Raises:
        muster_sandbox.containers.podman.MachineError: mmdebstrap failed.

    """
    folder = base_image.CACHE / f"vm-{release}-{digest(release)}"
    base_image.CACHE.mkdir(parents=True, exist_ok=True)
    with (base_image.CACHE / f"vm-{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build(release, folder)
    return Root(
        folder / "root.img",
        folder / "vmlinuz",
        folder / "key",
        (folder / "host_key.pub").read_text(encoding="utf-8").strip(),
    )


def build(release: str, folder: Path) -> None:
    """Build into a folder beside, and rename it when it is whole."""
    with tempfile.TemporaryDirectory(dir=base_image.CACHE, prefix="vm-build-") as name:
        work, recipe = Path(name) / "vm", Path(name) / "recipe"
        work.mkdir()
        base_image.copy_recipe(recipe)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / "key"],
            timeout=30,
            check=True,
        )
        (work / "proxy.conf").write_text(base_image.proxy_settings(), encoding="utf-8")
        _write_names(work / "etc")
        packages = ",".join(packages_of(release))
        run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={packages}",
                '--aptopt=APT::Install-Recommends "false"',
                f"--customize-hook=copy-in {RECIPE}/etc {recipe}/usr {work}/etc /",
                f'--customize-hook=mkdir -m 700 "$1"{base_image.CODE}',
                f"--customize-hook=upload {work}/proxy.conf /etc/apt/apt.conf.d/91proxy",
                '--customize-hook=mkdir -m 700 -p "$1"/root/.ssh',
                f"--customize-hook=upload {work}/key.pub /root/.ssh/authorized_keys",
                '--customize-hook=chroot "$1" systemctl enable --quiet systemd-networkd.service',
                f'--customize-hook=chroot "$1" systemctl mask --quiet {MASKED}',
                f'--customize-hook=chroot "$1" systemctl disable --quiet {SILENT}',
                f'--customize-hook=cp "$1"/boot/vmlinuz-* {work}/vmlinuz',
                f'--customize-hook=cp "$1"/etc/ssh/ssh_host_ed25519_key.pub {work}/host_key.pub',
                release,
                f"{name}/root",
            ],
            timeout=BUILD_SECONDS,
        )
        # Afterwards: while a hook runs, /proc and /sys are mounted there.
        run(["mke2fs", "-q", "-t", "ext4", "-d", f"{name}/root", f"{work}/root.img", SIZE])
        run(["rm", "-r", "--one-file-system", f"{name}/root"])
        run(["chown", "-R", f"{os.getuid()}:{os.getgid()}", str(work)])
        work.rename(folder)


def _write_names(etc: Path) -> None:
    """Write who is who on the wire: a machine finds its address by its number."""
    networks = etc / "systemd/network"
    networks.mkdir(parents=True)
    hosts = "127.0.0.1 localhost\n"
    for number, name in enumerate(MACHINES, start=1):
        text = NETWORK.format(number=number)
        (networks / f"20-cluster-{number}.network").write_text(text, encoding="utf-8")
        hosts += f"192.0.2.{number} {name}\n"
    (etc / "hosts").write_text(hosts, encoding="utf-8")


def missing_programs() -> list[str]:
    """Return what `make vm` would install."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    wanted = ("qemu-system-x86_64", "qemu-img", "mke2fs", "mmdebstrap", "ssh")
    return [name for name in wanted if shutil.which(name, path=path) is None]
