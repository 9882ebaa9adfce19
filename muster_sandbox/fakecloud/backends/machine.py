"""One machine of the podman backend: what it is made of, and the commands that make it."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from muster_sandbox.containers.bridge import hold_address, mac_address
from muster_sandbox.containers.podman import exists, podman, run, ulimits

LABEL = "muster_sandbox.fakecloud"
"""Label of everything that a fakecloud makes; its value is the fakecloud's name."""

GUEST = Path(__file__).parent / "guest"
"""Files that Google's images have and plain Debian doesn't; path = destination."""

HOSTS = """\
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
169.254.169.254 metadata.google.internal metadata
"""
"""/etc/hosts of Google's images: the metadata server is found without DNS."""


@dataclass(frozen=True)
class DataDisk:
    """A disk besides the boot disk."""

    id: str
    device_name: str
    size_gib: int


@dataclass(frozen=True)
class Machine:
    """The container of an instance."""

    cloud: str
    """Which fakecloud it belongs to."""
    id: str
    name: str
    address: str
    subnet: str
    """CIDR of its subnet."""
    network: str
    """Podman's network for the subnet."""
    boot_disk: str
    """Id of the boot disk."""
    image: str
    """Podman's image that the boot disk was made from."""
    data_disks: tuple[DataDisk, ...]
    shares: tuple[tuple[Path, str], ...]
    """Folders of this machine that all instances see, with their mount points."""

    @property
    def container(self) -> str:
        """Podman's name of it."""
        return f"{self.cloud}-{self.id}"


def create(machine: Machine, log: Path, hosts: Path) -> None:
    """Make the container, not running.

    `log` gets its console; `hosts` is a file with HOSTS.

    Raises:
        MachineError: podman failed.

    """
    if not exists("network", machine.network):
        podman(
            *("network", "create", "--subnet", machine.subnet),
            *("--label", f"{LABEL}={machine.cloud}", machine.network),
        )
    mounts = [
        word
        for folder, target in machine.shares
        for word in ("--volume", f"{folder.resolve()}:{target}")
    ]
    podman(
        *("create", "--tty", "--name", machine.container, "--hostname", machine.name),
        *("--label", f"{LABEL}={machine.cloud}", "--label", f"muster.disk={machine.boot_disk}"),
        *("--network", machine.network, "--ip", machine.address, "--no-hosts"),
        *("--network-alias", machine.name, "--mac-address", mac_address(machine.address)),
        *("--log-driver", "k8s-file", "--log-opt", f"path={log}"),
        *("--systemd=always", "--privileged", *ulimits(), *mounts),
        machine.image,
    )
    podman("cp", f"{GUEST}/.", f"{machine.container}:/")
    podman("cp", str(hosts), f"{machine.container}:/etc/hosts")


def boot(machine: Machine, folder: Path, endpoints: Mapping[str, str]) -> None:
    """Start the container, whose disks are in `folder`.

    `endpoints` are variables of its systemd, and so of all services: where Google's APIs are.

    Raises:
        MachineError: podman or losetup failed.

    """
    rows = []
    for disk in machine.data_disks:
        device = attach(disk, folder)
        numbers = run(["stat", "--format=%t %T", device]).stdout.split()
        major, minor = (int(number, 16) for number in numbers)
        rows.append(f"{disk.device_name} {device} {major} {minor}\n")
    variables = " ".join(f'"{name}={value}"' for name, value in endpoints.items())
    with tempfile.TemporaryDirectory(dir=folder) as made:
        etc = Path(made)
        (etc / "fakecloud-disks").write_text("".join(rows), encoding="utf-8")
        manager = etc / "systemd/system.conf.d/50-fakecloud.conf"
        manager.parent.mkdir(parents=True)
        manager.write_text(f"[Manager]\nDefaultEnvironment={variables}\n", encoding="utf-8")
        podman("cp", f"{made}/.", f"{machine.container}:/etc/")
    podman("start", machine.container)
    hold_address(machine.address)


def file_of(disk_id: str, folder: Path) -> Path:
    """The file that is a disk's content."""
    return folder / f"disk-{disk_id}"


def attach(disk: DataDisk, folder: Path) -> str:
    """Return the loop device of a disk's file, which is made if it is new."""
    file = file_of(disk.id, folder)
    if not file.exists():
        with file.open("wb") as new:
            new.truncate(disk.size_gib * 2**30)
    taken = run(["losetup", "--noheadings", "--output", "NAME", "--associated", str(file)]).stdout
    return taken.strip() or run(["losetup", "--find", "--show", str(file)]).stdout.strip()


def detach(disk_id: str, folder: Path) -> None:
    """Detach the loop device of a disk's file."""
    file = file_of(disk_id, folder)
    taken = run(["losetup", "--noheadings", "--output", "NAME", "--associated", str(file)]).stdout
    for device in taken.split():
        run(["losetup", "--detach", device])


def write_console(log: Path, text: bytes) -> None:
    """Write a console as podman's log has it."""
    stamp = datetime.now(UTC).isoformat().encode()
    lines = text.splitlines(keepends=True)
    log.write_bytes(
        b"".join(
            stamp
            + (b" stdout F " if line.endswith(b"\n") else b" stdout P ")
            + line.rstrip(b"\n")
            + b"\n"
            for line in lines
        )
    )


def console(log: Path) -> bytes:
    """Return what a container wrote to its terminal, out of podman's log (k8s-file)."""
    if not log.exists():
        return b""
    parts = []
    for line in log.read_bytes().splitlines(keepends=True):
        # TIME stdout F|P TEXT: P is a line that continues in the next one.
        _, _, rest = line.partition(b" ")
        _, _, rest = rest.partition(b" ")
        kind, _, text = rest.partition(b" ")
        parts.append(text.rstrip(b"\n") if kind == b"P" else text)
    return b"".join(parts)
