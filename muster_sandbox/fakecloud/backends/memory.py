"""Instances that are only records: thousands at once, without delay."""

from muster_sandbox.fakecloud.backends import STOP_SECONDS, Done
from muster_sandbox.fakecloud.http import Resource


class MemoryBackend:
    """Does nothing and reports success; tests set the console output of a machine."""

    def __init__(self) -> None:
        self.consoles: dict[str, bytes] = {}
        """Instance id -> console output."""

    def start(self, instance: Resource, done: Done) -> None:  # noqa: ARG002 (a backend's)
        """It runs."""
        done("")

    def stop(
        self,
        instance: Resource,  # noqa: ARG002
        done: Done,
        seconds: int = STOP_SECONDS,  # noqa: ARG002
    ) -> None:
        """It is off immediately: nothing shuts down."""
        done("")

    def delete(self, instance: Resource, done: Done) -> None:
        """It is gone."""
        self.consoles.pop(instance["id"], None)
        done("")

    def create_image(self, image: Resource, disk: Resource, done: Done) -> None:  # noqa: ARG002
        """An image is its record."""
        done("")

    def delete_image(self, image: Resource) -> None:
        """Nothing is left."""

    def delete_disk(self, disk: Resource) -> None:
        """Nothing is left."""

    def console(self, instance: Resource) -> bytes:
        """The console output that a test has set."""
        return self.consoles.get(instance["id"], b"")

    def close(self) -> None:
        """Nothing is left."""
