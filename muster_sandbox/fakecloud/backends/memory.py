"""Instances that are their record alone: thousands at once, in no time."""

from muster_sandbox.fakecloud.backends import STOP_SECONDS, Done
from muster_sandbox.fakecloud.http import Resource


class MemoryBackend:
    """Does nothing and is done; tests set what a machine would have written to its console."""

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
        """It is off at once: nothing shuts down."""
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
        """What a test has put there."""
        return self.consoles.get(instance["id"], b"")

    def close(self) -> None:
        """Nothing is left."""
