"""Why a job waits, or what state a node is in and why: one sentence for people; pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from muster.autoscaler.reconcile.model import CapacityPool, set_name
from muster.autoscaler.report.lifecycle import POWERING_UP, Stage, View
from muster.autoscaler.report.status_file import Row, Status
from muster.autoscaler.slurm.slurmctld import Queued
from muster.catalog.hostlists import expand, fold

FEW = 3
"""Nodes of a job that are named one by one."""
UNREAD_S = 60.0
"""Age of a reading from which something is wrong: they are read every 30 s at least."""
RECENT_S = 600.0
"""Age of an error of the cloud's API that may have to do with what is seen now."""

MEANING: Mapping[str, str] = {
    "None": "SLURM has not looked at it yet",
    "Resources": "no nodes are free that fit it",
    "Priority": "jobs of its partition with a higher priority come first",
    "BeginTime": "its time to begin is not reached; SLURM sets one when it queues a job again",
    "Dependency": "it depends on a job that has not ended",
    "DependencyNeverSatisfied": "it depends on a job that did not end as it must; cancel it",
    "JobHeldUser": "its owner holds it; `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it; `scontrol release` lets it go",
    "ReqNodeNotAvail": "a node that it asks for by name is not in service",
    "PartitionDown": "its partition is down",
    "PartitionNodeLimit": "its partition does not give so many nodes to one job",
    "PartitionTimeLimit": "its partition does not run a job for so long",
    "JobArrayTaskLimit": "as many tasks of its array run as it allows at a time",
    "Licenses": "it waits for a licence",
    "QOSMaxJobsPerUserLimit": "its owner runs as many jobs as the QOS allows",
}
"""What SLURM's words mean: https://slurm.schedmd.com/job_reason_codes.html."""


def why_node(status: Status, name: str, now: float) -> str | None:
    """Say what state a node is in and why; None where there is none of that name."""
    if name in status.off:
        return f"{name} is off: no job needs it."
    row = status.nodes.get(name)
    if row is None:
        return None
    parts = [f"{name} {_node(row, now)}"]
    if row.jobs and row.view.stage in POWERING_UP:
        parts.append(f"it is for job {', '.join(map(str, row.jobs))}")
    if row.view.stage is Stage.WAITING:
        sets = {set_name(status.cluster, name)}
        parts += _trouble(status, sets, now, besides=row.view.reason)
    return f"{'; '.join(parts)}."


def why_job(
    status: Status,
    job: str,
    queue: Sequence[Queued],
    partitions: Mapping[str, Sequence[str]],
    now: float,
) -> str | None:
    """Say why a job waits; None where the queue has none of that number.

    `partitions`: each partition and its nodes.
    """
    matches = meant(job, queue)
    if not matches:
        return None
    # Of an array the tasks that wait: nobody asks about the others.
    order = ("PENDING", "CONFIGURING")
    queued = min(matches, key=lambda task: order.index(task.state) if task.state in order else 9)
    rows = {node: status.nodes[node] for node in queued.nodes if node in status.nodes}
    late = {node: row for node, row in rows.items() if row.view.stage in POWERING_UP}
    if queued.state == "PENDING":
        parts = _pending(status, queued, _sets(status, queued, partitions), now)
    elif late:
        parts = [f"waits for {len(late)} of its {len(queued.nodes)} nodes"]
        parts += [f"{node} {_node(row, now)}" for node, row in list(late.items())[:FEW]]
        if len(late) > FEW:
            parts.append(f"and {len(late) - FEW} more")
        waiting = [node for node, row in late.items() if row.view.stage is Stage.WAITING]
        if waiting:
            sets = {set_name(status.cluster, node) for node in waiting}
            parts += _trouble(status, sets, now, besides="; ".join(parts))
    elif queued.state == "CONFIGURING":
        parts = [f"has its nodes, {fold(queued.nodes)}, and is about to start"]
    else:
        parts = [f"is {queued.state.lower()} on {fold(queued.nodes)}"]
    return f"job {queued.shown} {'; '.join(parts)}."


def meant(job: str, queue: Sequence[Queued]) -> list[Queued]:
    """Return the entries of the queue that a job's number stands for."""
    exact = [task for task in queue if job in (task.shown, str(task.id))]
    return exact or [task for task in queue if _has_task(task.shown, job)]


def _has_task(shown: str, job: str) -> bool:
    """Whether a task is one of those that squeue shows together: `12_[1,5-9%2]`, `12_[1-9:2]`."""
    if not shown.startswith(f"{job.partition('_')[0]}_["):
        return False
    try:
        return job in expand(re.sub("%[0-9]+", "", shown).replace(":", "/"))
    except ValueError:
        return True  # squeue has cut the list off: it may be one of the others


def _sets(status: Status, job: Queued, partitions: Mapping[str, Sequence[str]]) -> Collection[str]:
    """The node sets that a job may get nodes of; all sets where that is not known."""
    nodes: Sequence[str] = job.asked
    if len(nodes) < job.count:
        # Its other nodes may be any of its partitions.
        nodes = [node for name in job.partition.split(",") for node in partitions.get(name, ())]
    if not nodes:
        return status.sets
    return {set_name(status.cluster, node) for node in nodes} & status.sets.keys()


def _pending(status: Status, job: Queued, sets: Collection[str], now: float) -> list[str]:
    # Such as `ReqNodeNotAvail, UnavailableNodes:lab-debug-3`.
    meaning = MEANING.get(job.reason.partition(",")[0])
    parts = [f"waits with the reason {job.reason}" + (f": {meaning}" if meaning else "")]
    back = status.returned.get(job.id)
    # With other reasons SLURM estimates when nodes are free, and knows nothing of the cloud's room.
    if job.reason in ("BeginTime", "None") and job.start > now:
        parts.append(f"it may start{' again' if back else ''} in {lasted(job.start - now)}")
    if back:
        parts.append(f"its nodes were released {lasted(now - back.at)} ago: {back.reason}")
    if back or job.reason == "Resources":
        parts += _trouble(status, sets, now, besides="; ".join(parts))
    return parts


def _node(row: Row, now: float) -> str:
    """What state a node is in, without its name."""
    view, since = row.view, lasted(now - row.since)
    where = place(view)
    because = f": {view.reason}" if view.reason else ""
    again = f", tried again in {lasted(view.retry - now)}" if view.retry > now else ""
    said = {
        Stage.OFF: f"is off{because}",
        Stage.WAITING: f"has waited for {since} to be asked for{because}{again}",
        Stage.INSERTING: f"was requested from the cloud {since} ago ({where})",
        Stage.CREATED: f"has a VM since {since} that does not run yet ({where})",
        Stage.BOOTING: f"has been booting for {since} ({where})",
        Stage.STUCK: f"boots too long and is released soon ({where}){because}",
        Stage.IDLE: f"has been idle for {since} ({where})",
        Stage.BUSY: f"has had jobs for {since} ({where})",
        Stage.LEAVING: f"has taken no more jobs for {since}, "
        f"and is powered down when it has none{because}",
        Stage.DRAINED: f"has been drained for {since}{because}",
        Stage.DOWN: f"has been down for {since}{because}",
        Stage.NOT_RESPONDING: f"has not answered for {since} and its VM runs ({where})",
        Stage.VERIFYING: (
            "is in service, but a list lacks its VM or has it as stopped; it is read by its name"
        ),
        Stage.RELEASED: f"was released {since} ago{because}",
        Stage.GOING: f"was powered down {since} ago, its VM is deleted{because}",
        Stage.ORPHAN: f"is a VM that no node of SLURM has; it is deleted ({where})",
    }
    return said[view.stage].replace(" ()", "")


def _trouble(status: Status, sets: Collection[str], now: float, besides: str) -> Iterator[str]:
    """What blocks all nodes of these sets, without what `besides` says already."""
    whose = _whose(status, sets)
    for breaker in status.breakers:
        if breaker.pool not in whose:
            continue
        if breaker.half_open:
            said = f"it is being tried whether there is room for {breaker} again"
        else:
            held = breaker.until > now
            again = f"in {lasted(breaker.until - now)}" if held else "with the next request"
            said = f"there was no room for {breaker} ({breaker.code}), tried again {again}"
        yield whose[breaker.pool] + said
    for pool, vms in status.room.items():
        if vms == 0 and pool in whose:
            yield f"{whose[pool]}the quota has no room for {pool}"
    for what, unread in status.unread.items():
        yield f"{what} can't be {unread.verb} since {lasted(now - unread.since)}: {unread.why}"
    for what, at in (("slurmctld", status.slurm_read), ("the cloud", status.cloud_read)):
        if now > at + UNREAD_S and what not in status.unread:
            since = f"for {lasted(now - at)}" if at else "yet"
            yield f"{what} has not answered the daemon {since}"
    for error in dict.fromkeys(
        status.errors[name] for name in sorted(sets) if name in status.errors
    ):
        if now < error.at + RECENT_S and error.message not in besides:
            yield f"{error.what} failed {lasted(now - error.at)} ago: {error.code}: {error.message}"


def _whose(status: Status, sets: Collection[str]) -> dict[CapacityPool, str]:
    """Each pool of these sets -> whose it is, such as `set gpu: `; empty if there is one set."""
    users: dict[CapacityPool, list[str]] = {}
    for name in sorted(sets):
        for pool in status.sets.get(name, ()):
            users.setdefault(pool, []).append(name)
    if len(sets) == 1:
        return dict.fromkeys(users, "")
    return {
        pool: f"set{'s' if len(names) > 1 else ''} {', '.join(names)}: "
        for pool, names in users.items()
    }


def place(view: View) -> str:
    """Where a node is, or is to be: `n1-standard-2 (spot) in europe-west4-a`."""
    if view.machine_type and view.zone:
        return str(view.pool)
    return view.zone


def lasted(seconds: float) -> str:
    """Return a duration such as `45 s`, `12 min`, `3 h`, `2 d`."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
