"""Deletes what a cluster has left in its project, by its label.

That is what Pulumi has no resource for: nodes that SLURM made, builders and images of a
`pulumi up` that was killed. The disks of state and folders (`muster-role: state` and `folder`) are
never swept: their own resources are protected, and a person decides.
"""

import time
from collections.abc import Callable
from typing import Any

from muster.gcp import names
from muster.gcp.api import LAST_LOOK_S, NOT_FOUND, CloudError, Compute
from muster.gcp.reports import Progress

TIMEOUT_S = 900
"""Seconds until a sweep fails; deleting a VM takes a minute or two."""
POLL_S = 1.0
SETTLE_S = 5.0
"""Seconds until a new resource shows in a list: the answer to an insert is its operation."""
# Being deleted: asking again would only cost quota.
_GOING = ("STOPPING", "DELETING")

Look = Callable[[], list[dict[str, Any]]]


def everything(
    compute: Compute, cluster: str, progress: Progress, timeout_s: float = TIMEOUT_S
) -> None:
    """Delete all instances, then disks, then images that have a cluster's label.

    A VM that was asked for just before the controller's end may appear late, so a second look,
    `SETTLE_S` later, must find nothing too. Last the placement policies of its jobs, which
    can have no label, by their names.

    Raises:
        CloudError: something is still there after `timeout_s` seconds; names some of it.

    """
    until = time.monotonic() + timeout_s
    condition = names.of_cluster(cluster)
    _sweep(compute, condition, progress, until)
    while True:
        time.sleep(SETTLE_S)
        if not _sweep(compute, condition, progress, until):
            break

    def policies() -> list[dict[str, Any]]:
        return compute.everywhere("resourcePolicies", filter=names.of_jobs(cluster))

    _delete(compute, "placement", policies, until, progress)


def nodes(
    compute: Compute,
    cluster: str,
    node_set: str,
    progress: Progress,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Delete the nodes of one set, with their disks; raises as `everything` does."""
    condition = names.of_node_set(cluster, node_set)
    _sweep(compute, condition, progress, time.monotonic() + timeout_s)


def builders(
    compute: Compute, cluster: str, progress: Progress, timeout_s: float = TIMEOUT_S
) -> None:
    """Delete a cluster's builders and unfinished images; raises as `everything` does."""
    condition = names.of_cluster(cluster, names.BUILDER)
    _sweep(compute, condition, progress, time.monotonic() + timeout_s)


def _sweep(compute: Compute, condition: str, progress: Progress, until: float) -> bool:
    """Delete what meets a list's filter, and return whether there was anything."""
    compute = compute.by(until + LAST_LOOK_S)

    def disks() -> list[dict[str, Any]]:
        listed = compute.everywhere("disks", filter=condition)
        kept = (names.STATE, names.FOLDER)
        return [disk for disk in listed if disk["labels"].get(names.ROLE_LABEL) not in kept]

    kinds: dict[str, Look] = {
        "instance": lambda: compute.everywhere("instances", filter=condition),
        "disk": disks,
        "image": lambda: compute.list("global/images", filter=condition),
    }
    deleted = [_delete(compute, kind, look, until, progress) for kind, look in kinds.items()]
    return any(deleted)


def _delete(compute: Compute, kind: str, look: Look, until: float, progress: Progress) -> bool:
    """Delete what a look finds, all at once, until a look finds nothing; return whether one did.

    A refusal (too many calls, a disk that is still being detached) ends nothing: the next look
    decides.
    """
    refusal: CloudError | None = None
    said: set[str] = set()
    any_left = False
    while left := look():
        any_left = True
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
    return any_left


def path_of(item: dict[str, Any]) -> str:
    """The path of a listed resource below its project."""
    link: str = item["selfLink"]
    return link.partition("/projects/")[2].partition("/")[2]
