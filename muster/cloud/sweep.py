"""Removes what a cluster has left in its project, by its label.

That is what no resource of Pulumi's stands for: nodes that SLURM made, builders and images of a
`pulumi up` that was killed. The state disk (`muster-role: state`) is never swept: its own resource
is protected, and a person decides.
"""

import time
from collections.abc import Callable
from typing import Any

from muster.cloud import names
from muster.cloud.api import NOT_FOUND, CloudError, Compute
from muster.cloud.reports import Progress

TIMEOUT_S = 900
"""Seconds until a sweep is given up; deleting a VM takes a minute or two."""
POLL_S = 1.0
# Being deleted: asking again would only cost quota.
_GOING = ("STOPPING", "DELETING")

Look = Callable[[], list[dict[str, Any]]]


def everything(
    compute: Compute, cluster: str, progress: Progress, timeout_s: float = TIMEOUT_S
) -> None:
    """Delete all instances, then disks, then images that have a cluster's label.

    Raises:
        CloudError: something is still there after `timeout_s` seconds; names some of it.

    """
    _sweep(compute, names.of_cluster(cluster), progress, timeout_s)


def builders(
    compute: Compute, cluster: str, progress: Progress, timeout_s: float = TIMEOUT_S
) -> None:
    """Delete a cluster's builders and unfinished images; raises as `everything` does."""
    _sweep(compute, names.of_cluster(cluster, names.BUILDER), progress, timeout_s)


def _sweep(compute: Compute, found: str, progress: Progress, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s

    def disks() -> list[dict[str, Any]]:
        listed = compute.everywhere("disks", filter=found)
        return [disk for disk in listed if disk["labels"].get(names.ROLE_LABEL) != names.STATE]

    kinds: dict[str, Look] = {
        "instance": lambda: compute.everywhere("instances", filter=found),
        "disk": disks,
        "image": lambda: compute.list("global/images", filter=found),
    }
    for kind, look in kinds.items():
        _delete(compute, kind, look, until, progress)


def _delete(compute: Compute, kind: str, look: Look, until: float, progress: Progress) -> None:
    """Delete what a look finds, all at once, until a look finds nothing.

    A refusal (too many calls, a disk that is still being let go of) is no end: the next look
    decides.
    """
    refusal: CloudError | None = None
    said: set[str] = set()
    while left := look():
        for item in left:
            if item["status"] in _GOING:
                continue
            if item["name"] not in said:
                said.add(item["name"])
                progress(f"deleting the {kind} {item['name']}")
            try:
                compute.delete(path_of(item))
            except CloudError as error:
                if error.status != NOT_FOUND:
                    refusal = error
        if time.monotonic() > until:
            some = ", ".join(sorted(item["name"] for item in left)[:5])
            why = f": {refusal}" if refusal else ""
            raise CloudError(
                f"{len(left)} {kind}s of the cluster are still there ({some}){why}; "
                "run the same command again"
            )
        time.sleep(POLL_S)


def path_of(item: dict[str, Any]) -> str:
    """The path of a listed resource below its project."""
    link: str = item["selfLink"]
    return link.partition("/projects/")[2].partition("/")[2]
