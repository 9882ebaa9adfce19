"""Which of SLURM's requests a node's start belongs to, also where the request is lost; pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import Power
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState, Timeouts
from muster.autoscaler.reconcile.records import NodeRecord, Phase, Start, TrackedState, VmFacts
from muster.autoscaler.reconcile.release_results import after_reading
from muster.autoscaler.reconcile.transitions import Evidence, advanced

CALLED_S = 60.0
"""So soon after a node's state has changed SLURM calls ResumeProgram: mostly at once."""
ENDED_S = 20.0
"""Within it slurmctld ends a start whose ResumeTimeout is over; its power_save thread looks at each
node every few seconds."""


def with_start(
    observed: ObservedState,
    tracked: TrackedState,
    before: NodeRecord,
    name: str,
    lacking: Mapping[str, str],
) -> NodeRecord:
    """Return the record of a node that SLURM waits for: its start begins, or goes on.

    `lacking`: id and zone of its VMs that the newest list lacks, and one shortly before had.
    """
    older = {vm_id: zone for vm_id, zone in lacking.items() if vm_id not in before.gone}
    asked = observed.asked.get(name, -math.inf)
    record = after_reading(observed, before, name)
    if record.phase is Phase.RELEASED:
        return record
    if record.start and asked > record.start.called and _is_of(record.start, asked):
        return replace(record, start=_with_request(record.start, observed.timeouts, asked))
    if record.start is None or asked > record.start.called:
        start = _start(observed, tracked, name)
        # The VM of the start before may be in no list yet.
        known = not before.vm if before.start else _asked_since(tracked, name, start)
    elif (again := _after_gap(observed, tracked, record.start)) is None:
        return record
    elif again.doubted_at:
        return replace(record, start=again)
    else:
        start, known = again, False
    # What an insert has said since the last request belongs to that one.
    record = replace(record.settled(start.asked), start=start)
    if known and not older:
        return advanced(record, name, Evidence.ASKED, start.asked)
    # An earlier daemon, or the start before, may have made the VM in a zone that would not be
    # chosen now, and one list that lacks it does not prove that there is none. An insert that runs
    # may make another one.
    only = older if known and not record.insert else {}
    maybe = replace(record, vm=VmFacts(observed.now, older=only))
    return advanced(maybe, name, Evidence.ASKED_BEFORE, start.asked)


def _asked_since(tracked: TrackedState, name: str, start: Start) -> bool:
    """Whether SLURM asked for a node since this daemon began, so that no other has made its VM.

    Where the request is lost, the time of the start may be that of the reading before, as early as
    this daemon's first one; if that has the node in another state, SLURM asked after it.
    """
    if tracked.began is None:
        return False
    before = tracked.read.nodes.get(name) if tracked.read else None
    return start.asked > tracked.began or (
        before is not None and before.power is not Power.POWERING_UP
    )


def _is_of(start: Start, asked: float) -> bool:
    """Whether a request is that of a start which SLURM's states have shown without one.

    All readings since then have shown the node powering up: SLURM has begun no other start.
    """
    return start.noticed_at > 0 and asked <= start.noticed_at + CALLED_S


def _with_request(start: Start, timeouts: Timeouts, asked: float) -> Start:
    """Return a start with its request: what was done for it since it was noticed stays.

    If SLURM has called ResumeProgram later than that, it asked before, and VMs may be older than
    the call.
    """
    if asked > start.noticed_at:
        return replace(start, called=asked, noticed_at=0)
    accepted_from = asked - timeouts.skew_s
    return replace(start, asked=asked, accepted_from=accepted_from, called=asked, noticed_at=0)


def _after_gap(observed: ObservedState, tracked: TrackedState, start: Start) -> Start | None:
    """Return what becomes of a start that SLURM may have ended unseen; None: it stays as it is.

    slurmctld that was away has the same start when it is back, and ends it some seconds later. So
    the start is in doubt first; a node that powers up after that has another one. Its VM may be
    that of either, so it is kept: a healthy node is worth more than a verdict in time.
    """
    over = observed.nodes_at >= start.asked + observed.timeouts.verdict_s
    if over and observed.nodes_at == tracked.back_at:
        return replace(start, doubted_at=observed.nodes_at)
    ends_at = max(start.doubted_at, start.asked + observed.timeouts.resume_s) + ENDED_S
    if not start.doubted_at or observed.nodes_at < ends_at:
        return None
    return Start(
        start.doubted_at,
        start.accepted_from,
        start.called,
        noticed_at=observed.now,
        ran_by=start.ran_by,
    )


def _start(observed: ObservedState, tracked: TrackedState, name: str) -> Start:
    asked, read = observed.asked.get(name), tracked.read
    read_at = read.nodes_at if read else 0
    if asked is not None and asked > observed.now - observed.timeouts.resume_s:
        before = read.nodes.get(name) if read and read_at > asked else None
        if before is None or before.power is Power.POWERING_UP:
            return Start(asked, asked - observed.timeouts.skew_s, asked)
    # The request is lost. Or it is of an earlier start, and is kept for another node, or its file
    # could not be removed, or slurmctld was away. SLURM asked after it was read last, if it was:
    # some seconds ago, unless it did not answer, or this process was stopped.
    skew_s, first = observed.timeouts.skew_s, observed.now
    called = -math.inf if asked is None else asked
    accepted_from = called - skew_s
    if 0 < read_at < observed.nodes_at:
        accepted_from, first = max(accepted_from, read_at - skew_s), max(read_at, first - STALE_S)
    return Start(first, accepted_from, called, noticed_at=observed.now)
