"""Start, find and remove the containers that are used as machines."""

import ipaddress
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from muster_sandbox.containers import base_image
from muster_sandbox.containers.bridge import hold_address, mac_address
from muster_sandbox.containers.podman import MachineError, exists, podman, run, ulimits

LABEL = "muster.network"
"""Label with the network, and so the set of machines, that a container belongs to."""

FOLDER_LABEL = "muster.folder"
"""Label with the folder of a container's keys and shared folders."""

BOOT_SECONDS = 60
"""Timeout of a container's boot; 3 s on an idle machine."""


@dataclass(frozen=True)
class Machine:
    """A container to create: one host of an inventory."""

    name: str
    address: str
    release: str
    gpus: int = 0
    cores: int = 2
    """The first ones of this machine, which all machines share."""
    image: str = ""
    """Podman's image; empty: the bare one of the release."""


@dataclass(frozen=True)
class Fleet:
    """Machines on one network, with the folder that holds their ssh keys and shared folders."""

    network: str
    subnet: str
    folder: Path
    machines: tuple[Machine, ...]
    shares: Mapping[str, str] = field(default_factory=dict)
    """Folder below `folder` -> mount point, the same on all machines."""
    internet: bool = True
    """Whether the machines reach more than this one and each other."""

    def container(self, host: str) -> str:
        """Return the name of the container of `host`."""
        return f"{self.network}-{host}"

    @property
    def ssh_config(self) -> Path:
        """The ssh_config with which ssh reaches the machines, host keys checked."""
        return self.folder / "ssh_config"


FIRST_ADDRESS = 10
"""Offset of the first machine's address in a subnet that podman chose: the gateway has 1."""


def on_free_subnet(network: str, folder: Path, wanted: Sequence[Machine]) -> Fleet:
    """Return the machines with addresses of a subnet that podman found free.

    Raises:
        MachineError: podman failed.

    """
    if not exists("network", network):
        podman("network", "create", network)
    subnet = podman("network", "inspect", "--format", "{{(index .Subnets 0).Subnet}}", network)
    hosts = ipaddress.ip_network(subnet)
    placed = tuple(
        replace(machine, address=str(hosts[FIRST_ADDRESS + number]))
        for number, machine in enumerate(wanted)
    )
    return Fleet(network, subnet, folder, placed)


def up(fleet: Fleet) -> list[str]:
    """Bring up what is not up yet; return the names of the hosts that are new.

    Raises:
        MachineError: podman failed, an address is taken, a machine did not boot, or the containers
            are another folder's.

    """
    _refuse_others(fleet)
    fleet.folder.mkdir(parents=True, exist_ok=True)
    make_key(fleet.folder / "ssh_key")
    if not exists("network", fleet.network):
        # An internal network has no route beyond it. Podman's own name server would still answer
        # with addresses of the internet.
        gateway = str(ipaddress.ip_network(fleet.subnet)[1])
        inside = () if fleet.internet else ("--internal", "--disable-dns", "--gateway", gateway)
        podman("network", "create", "--subnet", fleet.subnet, *inside, fleet.network)
    for name in fleet.shares:
        (fleet.folder / name).mkdir(exist_ok=True)
    new = [machine for machine in fleet.machines if _start(fleet, machine)]
    for machine in fleet.machines:
        wait_for_boot(fleet.container(machine.name))
    _write_ssh_config(fleet)
    return [machine.name for machine in new]


def down(network: str) -> list[str]:
    """Remove the containers of `network` and the network itself; return their names."""
    names = podman(
        "ps", "--all", "--filter", f"label={LABEL}={network}", "--format", "{{.Names}}"
    ).split()
    if names:
        # At once: podman 4.3 fails when a container stops just as the time to stop is up.
        podman("rm", "--force", "--time", "0", *names)
    if exists("network", network):
        podman("network", "rm", network)
    return names


def _refuse_others(fleet: Fleet) -> None:
    """Refuse containers of the same names that another clone, perhaps a deleted one, has made."""
    folders = podman(
        *("ps", "--all", "--filter", f"label={LABEL}={fleet.network}"),
        *("--format", f'{{{{index .Labels "{FOLDER_LABEL}"}}}}'),
    ).splitlines()
    for folder in sorted(set(folders) - {str(fleet.folder.resolve())}):
        raise MachineError(
            f"there are containers of {fleet.network} that belong to {folder or 'another clone'}; "
            f"remove them first: make demo-down, or podman rm --force $(podman ps --all --quiet "
            f"--filter label={LABEL}={fleet.network})"
        )


def remove_folder(folder: Path) -> None:
    """Remove the state of a fleet; files that root made in the machines too."""
    if folder.exists():
        run(["rm", "--recursive", "--force", "--one-file-system", str(folder)])


def execute(container: str, *command: str, timeout: float = 60) -> str:
    """Run `command` in a machine as root, beside ssh; return its output."""
    return podman("exec", container, *command, timeout=timeout)


def _start(fleet: Fleet, machine: Machine) -> bool:
    name = fleet.container(machine.name)
    if exists("container", name):
        if podman("container", "inspect", "--format", "{{.State.Running}}", name) != "true":
            podman("start", name)
            hold_address(machine.address)
        # Repeated: the run that made the container may have been killed before this.
        _equip(fleet, machine)
        return False
    # Nodes have two cores whatever this machine has, so one definition fits everywhere.
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[: machine.cores])
    mounts = [
        word
        for source, target in fleet.shares.items()
        for word in ("--volume", f"{(fleet.folder / source).resolve()}:{target}")
    ]
    podman(
        *("run", "--detach", "--name", name, "--hostname", machine.name),
        *("--label", f"{LABEL}={fleet.network}"),
        *("--label", f"{FOLDER_LABEL}={fleet.folder.resolve()}"),
        # Podman would mount its own /etc/hosts, which can't be replaced by rename.
        *("--network", fleet.network, "--ip", machine.address, "--no-hosts"),
        # The same after each start: others cache the pair of addresses (ARP) for a minute.
        *("--mac-address", mac_address(machine.address)),
        # Privileged for mknod and for the cgroups that slurmd makes for its jobs.
        *("--systemd=always", "--privileged", "--cpuset-cpus", cores, *ulimits(), *mounts),
        machine.image or base_image.ensure(machine.release),
    )
    hold_address(machine.address)
    _equip(fleet, machine)
    return True


def _equip(fleet: Fleet, machine: Machine) -> None:
    """Authorize the fleet's ssh key, and write how many GPUs to make."""
    # The unit that makes them may read it now, where the machine is booting again.
    file = "/etc/fake-gpus"
    gpus = f"; echo {machine.gpus} >{file}.new; mv {file}.new {file}" if machine.gpus else ""
    podman(
        *("exec", "--interactive", fleet.container(machine.name), "sh", "-c"),
        f"umask 077; mkdir -p /root/.ssh; cat >/root/.ssh/authorized_keys{gpus}",
        stdin=(fleet.folder / "ssh_key.pub").read_text(encoding="utf-8"),
    )


def wait_for_boot(container: str) -> None:
    """Return when systemd in `container` has started everything.

    Raises:
        MachineError: it has not within `BOOT_SECONDS`.

    """
    deadline = time.monotonic() + BOOT_SECONDS
    state = "?"
    while time.monotonic() < deadline:
        try:
            state = podman("exec", container, "systemctl", "is-system-running", timeout=30)
        except MachineError as error:
            # "starting" comes with exit code 1, and before systemd listens there is no bus.
            state = str(error)
        if state == "running":
            # The unit was started before its condition was true.
            podman("exec", container, "systemctl", "start", "fake-gpus.service")
            return
        time.sleep(0.1)
    failed = podman("exec", container, "systemctl", "--failed", "--no-legend", "--plain")
    raise MachineError(
        f"{container} did not boot within {BOOT_SECONDS} s: {state}; failed units: "
        f"{failed or 'none'}; see `podman exec {container} journalctl -b`"
    )


def make_key(path: Path) -> None:
    """Make an ssh key pair without passphrase at `path` unless there is one."""
    if not path.exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "muster", "-f", str(path)],
            check=True,
            timeout=60,
        )


def _write_ssh_config(fleet: Fleet) -> None:
    # Read over podman, not over the network: the first connection is checked as well.
    keys = {
        machine.name: execute(
            fleet.container(machine.name), "cat", "/etc/ssh/ssh_host_ed25519_key.pub"
        )
        for machine in fleet.machines
    }
    config, known_hosts = ssh_texts(fleet, keys)
    (fleet.folder / "known_hosts").write_text(known_hosts, encoding="utf-8")
    fleet.ssh_config.write_text(config, encoding="utf-8")


def ssh_texts(fleet: Fleet, keys: Mapping[str, str]) -> tuple[str, str]:
    """Return the texts of ssh_config and known_hosts, given each host's public key file."""
    known, config = [], []
    for machine in fleet.machines:
        kind, value = keys[machine.name].split()[:2]
        known.append(f"{machine.name},{machine.address} {kind} {value}\n")
        config.append(f"Host {machine.name}\n  HostName {machine.address}\n")
    config.append(
        "Host *\n"
        "  User root\n"
        f"  IdentityFile {(fleet.folder / 'ssh_key').resolve()}\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {(fleet.folder / 'known_hosts').resolve()}\n"
        "  StrictHostKeyChecking yes\n"
        "  HostKeyAlgorithms ssh-ed25519\n"
    )
    return "".join(config), "".join(known)
