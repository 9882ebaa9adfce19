"""References to images: as a program writes them, as they are sent, and how they are compared."""

from typing import Any

from muster_sandbox.provider.links import last, relative
from muster_sandbox.provider.rest import CloudError, Rest


def resolve(rest: Rest, project: str, image: str) -> str:
    """Return the path that is sent for an image; look up a short form in the cloud.

    Links and `projects/...` are sent as given; `debian-cloud/debian-12` and `debian-12` are looked
    for as an image first, then as a family.

    Raises:
        CloudError: there is no such image and no such family.

    """
    if "projects/" in image:
        return image
    words = image.split("/")
    if words[0] == "global":
        return f"projects/{project}/{image}"
    if "family" not in words[:-1]:
        owner = words[0] if len(words) == 2 else project
        path = f"projects/{owner}/global/images/{words[-1]}"
        if rest.exists("GET", "compute", path) is not None:
            return path
    else:
        owner = words[0] if words[0] != "family" else project
    path = f"projects/{owner}/global/images/family/{words[-1]}"
    if rest.exists("GET", "compute", path) is not None:
        return path
    raise CloudError(f"Could not find image or family {image}")


def same_image(new: Any, old: Any) -> bool:
    """Say whether an image in the program is the one that a disk was made from.

    The provider compares only names: a family matches its image if the image's name contains the
    family's. So an image `img-123` of family `slurm` never matches, and the disk is replaced at
    every `up`.
    """
    if not isinstance(new, str) or not isinstance(old, str) or not old:
        return bool(new == old)
    if relative(new) == relative(old) or last(new) == last(old):
        return same_project(new, old)
    return same_project(new, old) and last(new).lower() in last(old).lower()


def same_project(new: str, old: str) -> bool:
    """Say whether two references may be in the same project: one may name no project."""
    words = relative(new).split("/")
    if words[0] == "projects":
        owner = words[1]
    elif len(words) >= 2 and words[0] not in ("family", "global"):
        owner = words[0]
    else:
        return True
    there = relative(old).split("/")
    return there[0] != "projects" or there[1] == owner
