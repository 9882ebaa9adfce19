"""What an instance is, apart from its record: nothing (memory) or a container (podman)."""

from collections.abc import Callable
from typing import Protocol

from muster.fakecloud.call import Resource

Done = Callable[[str], None]
"""Called on the cloud's thread when the machine has got there: with "", or with why it hasn't."""


class Backend(Protocol):
    """Machines. All methods are called on the cloud's thread and return at once."""

    def start(self, instance: Resource, done: Done) -> None:
        """Boot the machine; it may have existed and been stopped."""

    def stop(self, instance: Resource, done: Done) -> None:
        """Power it off; its disks stay."""

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
