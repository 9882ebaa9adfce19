"""Which API description serves which paths."""

from dataclasses import dataclass

from muster_sandbox.fakecloud import descriptions
from muster_sandbox.fakecloud.api_errors import ApiError, not_implemented
from muster_sandbox.fakecloud.descriptions import Match


@dataclass(frozen=True, slots=True)
class Mount:
    """Paths that begin with `prefix` belong to one description.

    `strip`: the prefix means a host and is not a part of the description's paths, e.g.
    /secretmanager/v1/projects/P for https://secretmanager.googleapis.com/v1/projects/P.
    """

    prefix: str
    document: str
    strip: bool = False


MOUNTS = (
    Mount("compute/v1/", "compute.v1"),
    Mount("compute/beta/", "compute.beta"),
    Mount("storage/v1/", "storage.v1"),
    Mount("upload/storage/v1/", "storage.v1"),
    Mount("resumable/upload/storage/v1/", "storage.v1"),
    Mount("download/storage/v1/", "storage.v1"),
    Mount("secretmanager/", "secretmanager.v1", strip=True),
    Mount("iam/", "iam.v1", strip=True),
    Mount("cloudresourcemanager/", "cloudresourcemanager.v1", strip=True),
    Mount("cloudbilling/", "cloudbilling.v1", strip=True),
    Mount("serviceusage/", "serviceusage.v1", strip=True),
    Mount("iap/", "iap.v1", strip=True),
)


def find(verb: str, path: str) -> Match:
    """The method of a request; `path` is undecoded. ApiError where there is none."""
    path = path.lstrip("/")
    for mount in MOUNTS:
        if path.startswith(mount.prefix):
            inner = path.removeprefix(mount.prefix) if mount.strip else path
            match = descriptions.load(mount.document).match(verb, inner)
            if match is None:
                raise ApiError(
                    404, "notFound", f"The requested URL /{path} was not found on this server."
                )
            return match
    raise not_implemented(f"{verb} /{path}")
