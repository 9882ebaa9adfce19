"""Instances that are containers with systemd: they boot, run their startup-script, power off.

What is real: the system and its units, addresses and names on a network, the metadata server at
its usual address, disks as loop devices, images as committed containers. What is not: their own
kernel, udev, DHCP, firewall rules, routes of the VPC, machine types (each sees this machine's
cores and memory).
"""

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import MachineError, exists, podman, run
from muster_sandbox.fakecloud.backends import STOP_SECONDS, Done, machine
from muster_sandbox.fakecloud.backends.kept import Kept, Left
from muster_sandbox.fakecloud.backends.machine import LABEL, DataDisk, Machine
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.environment import endpoints
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.usage import last

log = logging.getLogger(__name__)

METADATA_ADDRESS = "169.254.169.254"
"""https://cloud.google.com/compute/docs/metadata/querying-metadata"""

ADDRESS_LABEL = "lo:muster"
"""Says that a fakecloud gave it to this machine: `ip` asks for the device's name as its prefix."""

HOLDER = b"\0muster-metadata-address"
"""An abstract socket, bound by who has the address: there is one in a network namespace, as the
address, and it ends with its process even if that is killed (unix(7))."""

RELEASES = {"debian-12": "bookworm", "debian-13": "trixie"}
"""Prefix of a public image's name -> release of the base image that is used for it."""


@dataclass(frozen=True)
class Records:
    """How a backend reports what a machine did; called on the cloud's thread."""

    powered_off: Callable[[Cloud, Resource], None]
    """A machine has powered itself off."""
    reported: Callable[[Cloud, Resource], Mapping[str, Resource]]
    """The guest attributes that a machine has set."""
    report: Callable[[Cloud, Resource, Mapping[str, Resource]], None]
    """Set guest attributes for a machine that is not run because its result was kept."""


class PodmanBackend:
    """Machines of one fakecloud; `name` is the prefix of everything that it makes."""

    def __init__(
        self,
        cloud: Cloud,
        url: str,
        name: str,
        folder: Path,
        records: Records,
        *,
        shares: Mapping[Path, str] | None = None,
        kept: Kept | None = None,
    ) -> None:
        """Remove what an earlier fakecloud of this name left behind.

        `url` is where machines find the APIs; `folder` holds disks and consoles; `shares` are
        folders that all machines see, with their mount points; `kept` has what builders left.

        Raises:
            MachineError: this machine has no podman, or it failed.

        """
        self.cloud = cloud
        self.endpoints = endpoints(url)
        self.name = name
        self.folder = folder
        self.records = records
        self.shares = tuple((shares or {}).items())
        self.kept = kept
        self._digests: dict[str, str] = {}
        """Id of a boot disk that has booted once -> `Kept.digest`."""
        self._left: dict[str, Left] = {}
        """Id of a boot disk -> what its machine had left when it powered itself off."""
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="machine")
        self._expected: set[str] = set()
        """Containers that are being stopped by a call."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text(machine.HOSTS, encoding="utf-8")
        self._clear()

    # The cloud calls these, on its thread.

    def start(self, instance: Resource, done: Done) -> None:
        """Make the container unless it is there, and boot it."""
        try:
            made_of, disk = self._machine(instance)
        except MachineError as error:
            done(str(error))
            return
        self._expected.discard(made_of.container)
        self._do(lambda: self._boot(made_of, disk, instance), done)

    def stop(self, instance: Resource, done: Done, seconds: int = STOP_SECONDS) -> None:
        """Let systemd shut down, as the power button does; the container stays."""
        container = self._container(instance)
        self._expected.add(container)
        self._do(lambda: podman("stop", "--time", str(seconds), container), done)

    def delete(self, instance: Resource, done: Done) -> None:
        """Remove the container; a boot disk that stays is kept as an image.

        Where a disk stays, the container shuts down first, as
        https://cloud.google.com/compute/docs/shutdownscript says; otherwise nobody could see what
        the machine writes at its end.
        """
        container = self._container(instance)
        self._expected.add(container)
        boot = next((disk for disk in instance["disks"] if disk["boot"]), None)
        kept = boot is not None and not boot["autoDelete"]
        disk_id = self._disk(boot)["id"] if boot and kept else ""
        loops = [self._disk(disk)["id"] for disk in instance["disks"] if not disk["boot"]]
        in_order = any(not disk["autoDelete"] for disk in instance["disks"])
        self._do(lambda: self._remove(container, disk_id, loops, in_order=in_order), done)

    def create_image(self, image: Resource, disk: Resource, done: Done) -> None:
        """Commit the container whose boot disk it is."""
        left = self._left.get(disk["id"])
        self._do(lambda: self._commit(disk, self._image_name(image["id"]), left), done)

    def delete_image(self, image: Resource) -> None:
        """Remove podman's image."""
        self._forget_image(self._image_name(image["id"]))

    def delete_disk(self, disk: Resource) -> None:
        """Remove the disk's file, or the image of a boot disk."""
        disk_id = disk["id"]
        self._forget_image(self._disk_name(disk_id))

        def remove() -> None:
            machine.detach(disk_id, self.folder)
            machine.file_of(disk_id, self.folder).unlink(missing_ok=True)

        self._do(remove, _noted)

    def console(self, instance: Resource) -> bytes:
        """What systemd and the startup-script wrote to the terminal."""
        return machine.console(self._log(self._container(instance)))

    def close(self) -> None:
        """Remove all containers, networks, images and loop devices."""
        self._workers.shutdown()
        self._clear()

    # These take time and run on the backend's threads.

    def _do(self, work: Callable[[], object], done: Done) -> None:
        def task() -> None:
            problem = ""
            try:
                work()
            except Exception as error:
                # Any error: callers would wait forever for an operation that never ends.
                log.exception("a machine's work failed")
                problem = str(error) or repr(error)
            self.cloud.report(lambda: done(problem))

        self._workers.submit(task)

    def _boot(self, made_of: Machine, disk: Resource, instance: Resource) -> None:
        self._left.pop(disk["id"], None)
        if exists("container", made_of.container):
            self._digests.pop(disk["id"], None)
        else:
            source = self._source(disk)
            if self.kept:
                digest = self.kept.digest(source, instance)
                if left := self.kept.find(digest):
                    self._end_as_before(replace(made_of, image=left.image), instance, left)
                    return
                self._digests[disk["id"]] = digest
            complete = replace(made_of, image=source)
            machine.create(complete, self._log(made_of.container), self.folder / "hosts")
        machine.boot(made_of, self.folder, self.endpoints)
        threading.Thread(
            target=self._watch, args=(made_of.container, instance), daemon=True
        ).start()

    def _end_as_before(self, made_of: Machine, instance: Resource, left: Left) -> None:
        """Make the container as an earlier one was when it had powered itself off."""
        log = self._log(made_of.container)
        machine.create(made_of, log, self.folder / "hosts")
        machine.write_console(log, left.console)

        def ended() -> None:
            self.records.report(self.cloud, instance, left.guest_attributes)
            self.records.powered_off(self.cloud, instance)

        # Only after its start has been reported.
        self.cloud.report(lambda: self.cloud.later(1, ended))

    def _watch(self, container: str, instance: Resource) -> None:
        """Wait until the machine is off; report it unless a call stopped the machine."""
        try:
            podman("wait", container, timeout=10**6)
        except MachineError:
            return  # it is gone
        self.cloud.report(lambda: self._ended(container, instance))

    def _ended(self, container: str, instance: Resource) -> None:
        if container in self._expected:
            return
        if self.kept:
            boot = next(disk for disk in instance["disks"] if disk["boot"])
            reported = dict(self.records.reported(self.cloud, instance))
            self._left[self._disk(boot)["id"]] = Left("", self.console(instance), reported)
        self.records.powered_off(self.cloud, instance)

    def _remove(self, container: str, disk_id: str, loops: list[str], *, in_order: bool) -> None:
        if in_order and exists("container", container):
            podman("stop", "--time", str(STOP_SECONDS), container)
            if disk_id:
                podman("commit", container, self._disk_name(disk_id))
        podman("rm", "--force", "--ignore", "--time", "0", container)
        self._log(container).unlink(missing_ok=True)
        for loop in loops:
            machine.detach(loop, self.folder)

    def _commit(self, disk: Resource, target: str, left: Left | None) -> None:
        of_disk = f"label=muster.disk={disk['id']}"
        container = podman("ps", "--all", "--quiet", "--filter", of_disk)
        if container:
            podman("commit", container, target)
        else:
            podman("tag", self._source(disk), target)
        # Only when an image is made of the disk: the client does that after a successful build.
        if self.kept and left and (digest := self._digests.get(disk["id"])):
            self.kept.keep(digest, replace(left, image=target))

    def _forget_image(self, name: str) -> None:
        def remove() -> None:
            if exists("image", name):
                podman("rmi", "--force", name)

        self._do(remove, _noted)

    def _clear(self) -> None:
        label = f"label={LABEL}={self.name}"
        containers = podman("ps", "--all", "--quiet", "--filter", label).split()
        if containers:
            podman("rm", "--force", "--time", "0", *containers)
        for network in podman("network", "ls", "--quiet", "--filter", label).split():
            podman("network", "rm", network)
        names = podman("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines()
        ours = [name for name in names if name.startswith(f"localhost/{self.name}/")]
        if ours:
            podman("rmi", "--force", *ours)
        for file in self.folder.glob("disk-*"):
            machine.detach(file.name.removeprefix("disk-"), self.folder)

    # Names and values that follow from records.

    def _machine(self, instance: Resource) -> tuple[Machine, Resource]:
        """The container's parameters, and the record of its boot disk."""
        interface = instance["networkInterfaces"][0]
        project, _, region, _, name = (
            interface["subnetwork"].partition("/projects/")[2].split("/")[0:5]
        )
        subnet = self.cloud.store.get("compute.subnetworks", f"{project}/regions/{region}", name)
        if subnet is None:
            raise MachineError(f"{instance['name']}: its subnet {name} is gone")
        disks = [disk for disk in instance["disks"] if "source" in disk]
        boot = self._disk(next(disk for disk in disks if disk["boot"]))
        vm = Machine(
            cloud=self.name,
            id=instance["id"],
            name=instance["name"],
            address=interface["networkIP"],
            subnet=subnet["ipCidrRange"],
            network=f"{self.name}-{subnet['id']}",
            boot_disk=boot["id"],
            image="",  # finding it takes time, making it more
            data_disks=tuple(
                DataDisk(record["id"], disk["deviceName"], int(record["sizeGb"]))
                for disk in disks
                if not disk["boot"]
                for record in [self._disk(disk)]
            ),
            shares=self.shares,
        )
        return vm, boot

    def _container(self, instance: Resource) -> str:
        return f"{self.name}-{instance['id']}"

    def _log(self, container: str) -> Path:
        return self.folder / f"{container}.console"

    def _disk(self, attached: Resource) -> Resource:
        """The record of an attached disk."""
        link = attached["source"]
        scope = "/".join(link.partition("/projects/")[2].split("/")[:3])
        disk = self.cloud.store.get("compute.disks", scope, last(link))
        if disk is None:
            raise MachineError(f"the disk {link} is gone")
        return disk

    def _source(self, disk: Resource) -> str:
        """Podman's image that a boot disk is made from."""
        if exists("image", self._disk_name(disk["id"])):
            return self._disk_name(disk["id"])
        link: str = disk.get("sourceImage", "")
        name = last(link)
        if "/projects/debian-cloud/" in link:
            for prefix, release in RELEASES.items():
                if name.startswith(prefix):
                    return base_image.ensure(release)
        elif "sourceImageId" in disk:
            return self._image_name(disk["sourceImageId"])
        raise MachineError(f"no container image is known for the image {name or '(none)'}")

    def _image_name(self, image_id: str) -> str:
        return f"localhost/{self.name}/image-{image_id}:latest"

    def _disk_name(self, disk_id: str) -> str:
        return f"localhost/{self.name}/disk-{disk_id}:latest"


def _noted(_problem: str) -> None:
    """Called at the end of work that no operation waits for: errors are in the log."""


@contextmanager
def metadata_address() -> Iterator[None]:
    """Give this machine the metadata server's address for the duration of the block.

    An address that a killed fakecloud left behind is taken over.

    Raises:
        MachineError: another fakecloud has it, or the machine has it for something else.

    """
    with socket.socket(socket.AF_UNIX) as holder:
        try:
            holder.bind(HOLDER)
        except OSError as error:
            raise MachineError(
                f"another fakecloud has this machine's address {METADATA_ADDRESS}: end it first"
            ) from error
        shown = run(["ip", "-oneline", "address", "show"]).stdout
        ours = [line for line in shown.splitlines() if METADATA_ADDRESS in line]
        if not ours:
            address = [f"{METADATA_ADDRESS}/32", "dev", "lo", "label", ADDRESS_LABEL]
            run(["ip", "address", "add", *address])
        elif ADDRESS_LABEL not in ours[0]:
            raise MachineError(
                f"this machine has the address {METADATA_ADDRESS} for something else: "
                "instances that are containers need another machine"
            )
        try:
            yield
        finally:
            run(["ip", "address", "del", f"{METADATA_ADDRESS}/32", "dev", "lo"])
