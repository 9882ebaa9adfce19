"""Names of Google's resources, in programs and in answers."""

import re
from typing import Any


def last(value: Any) -> Any:
    """Return the last part: `n1-standard-2` of `.../machineTypes/n1-standard-2`."""
    return value.rstrip("/").rsplit("/", 1)[-1] if isinstance(value, str) else value


def relative(link: str) -> str:
    """Return a link from `projects/` on: links of one resource differ in host and version."""
    match = re.search(r"projects/.*", link)
    return match[0] if match else link


def same_link(new: Any, old: Any) -> bool:
    """Say whether two links, or a link and a name, mean the same resource."""
    if not isinstance(new, str) or not isinstance(old, str):
        return bool(new == old)
    if "/" in new and "/" in old:
        return relative(new) == relative(old)
    return bool(last(new) == last(old))


def same_name(new: Any, old: Any) -> bool:
    """Say whether two links end in the same name, for types and zones."""
    return bool(last(new) == last(old))


def same_set(new: Any, old: Any) -> bool:
    """Compare lists without their order."""
    return sorted(map(str, new or [])) == sorted(map(str, old or []))


def same_number(new: Any, old: Any) -> bool:
    """Compare numbers that Google's JSON writes as strings."""
    return str(new) == str(old)


def number(value: Any) -> Any:
    """Return an int64, which Google's JSON writes as a string, as a number."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def global_link(project: str, collection: str, value: str) -> str:
    """Return `projects/P/global/networks/N` for a name or any form of link."""
    path = relative(value)
    return path if "/" in path else f"projects/{project}/global/{collection}/{value}"


def zonal_link(project: str, zone: str, collection: str, value: str) -> str:
    """Return `projects/P/zones/Z/disks/D` for a name or any form of link."""
    path = relative(value)
    return path if "/" in path else f"projects/{project}/zones/{zone}/{collection}/{value}"


def regional_link(project: str, region: str, collection: str, value: str) -> str:
    """Return `projects/P/regions/R/subnetworks/S` for a name or any form of link."""
    path = relative(value)
    return path if "/" in path else f"projects/{project}/regions/{region}/{collection}/{value}"


def region_of(zone: str) -> str:
    """Return the region of a zone: `europe-west4` of `europe-west4-a`."""
    return str(last(zone)).rsplit("-", 1)[0]
