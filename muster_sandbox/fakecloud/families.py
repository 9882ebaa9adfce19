"""The image of a family."""

import re
from typing import Any

from muster_sandbox.fakecloud.cloud import Cloud

READY = "READY"
# A family is named in all zones, or as a zone sees it (in fakecloud all see the same):
# https://cloud.google.com/compute/docs/images/image-families-best-practices
LINK = re.compile(
    r"(?:.*projects/(?P<project>[^/]+)/)?"
    r"(?:(?:global/)?images/family|zones/[^/]+/imageFamilyViews)/(?P<family>[^/]+)"
)


def named(link: str) -> tuple[str, str] | None:
    """Return project ("" if the link has none) and family of a link that names a family."""
    match = LINK.fullmatch(link)
    return (match["project"] or "", match["family"]) if match else None


def newest(cloud: Cloud, project: str, family: str) -> dict[str, Any] | None:
    """The newest image of a family that is ready."""
    members = [
        image
        for image in cloud.store.within("compute.images", f"{project}/global").values()
        if image.get("family") == family and image["status"] == READY
    ]
    return max(members, key=lambda image: str(image["creationTimestamp"]), default=None)
