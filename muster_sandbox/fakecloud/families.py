"""The image of a family."""

from typing import Any

from muster_sandbox.fakecloud.cloud import Cloud

READY = "READY"


def newest(cloud: Cloud, project: str, family: str) -> dict[str, Any] | None:
    """The newest image of a family that is ready."""
    members = [
        image
        for image in cloud.store.within("compute.images", f"{project}/global").values()
        if image.get("family") == family and image["status"] == READY
    ]
    return max(members, key=lambda image: str(image["creationTimestamp"]), default=None)
