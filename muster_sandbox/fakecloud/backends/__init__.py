"""What runs for an instance, besides its record: nothing (memory) or a container (podman)."""

from collections.abc import Callable
from typing import Protocol

from muster_sandbox.fakecloud.http import Resource

STOP_SECONDS = 90
"""How long a machine may take to stop unless it is preempted: Google gives it about as long."""

Done = Callable[[str], None]
"""Called on the cloud's thread when the machine is in that state; with "", or the error."""


class Backend(Protocol):
    """Machines. All methods are called on the cloud's thread and return at once.

    What takes time is done elsewhere and reported by `cloud.report(lambda: done(""))`. Calls for
    one machine may overlap: it may be deleted before its start has been reported. A machine that
    powers itself off is reported by `lifecycle.stopped`.
    """

    def start(self, instance: Resource, done: Done) -> None:
        """Boot the machine, a new one or one that was stopped. A failed one leaves nothing.

        It is called again where fakecloud ended before `done` was called.
        """

    def stop(self, instance: Resource, done: Done, seconds: int = STOP_SECONDS) -> None:
        """Press its power button, and switch it off after `seconds`; its disks stay."""

    def delete(self, instance: Resource, done: Done) -> None:
        """Remove the machine."""

    def create_image(self, image: Resource, disk: Resource, done: Done) -> None:
        """Make an image from a disk that no running machine uses."""

    def delete_image(self, image: Resource) -> None:
        """Remove what an image is made of."""

    def delete_disk(self, disk: Resource) -> None:
        """Remove what a disk is made of."""

    def console(self, instance: Resource) -> bytes:
        """All that the machine wrote to its serial port 1 so far."""

    def close(self) -> None:
        """Remove whatever is left of the machines; fakecloud ends."""
