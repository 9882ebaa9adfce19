"""Apply the results of actions, and SLURM's newest states, to the tracked state; pure."""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

from muster.autoscaler.reconcile import circuit_breaker
from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import (
    STOPPED,
    CapacityPool,
    Choice,
    Deleted,
    Failure,
    Insert,
    Inserted,
    Power,
    ProbeResult,
    Released,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.reconcile.records import (
    NOTHING,
    POWERING_UP,
    Deletion,
    NodeRecord,
    Phase,
    Readings,
    Start,
    TrackedState,
    VmFacts,
    put,
    take,
)
from muster.autoscaler.reconcile.retry_policy import (
    Remedy,
    is_outcome_unknown,
    is_shortage,
    remedy,
    sentence,
)
from muster.autoscaler.reconcile.transitions import Evidence, step

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 30.0
"""Wait before an insert that failed temporarily is tried again; it doubles with each try."""
RELEASED_AGAIN_S = 10.0
"""A node whose state in slurmctld has not changed so long after its release is released again."""
DELETED_AGAIN_S, LATEST_DELETED_AGAIN_S = 10.0, 1800.0
"""Wait before a deletion that failed is tried again, at least and at most."""
ENDED_S = 20.0
"""Within it slurmctld ends a start whose ResumeTimeout is over; its power_save thread looks at each
node every few seconds."""
INSERT_S, DELETION_S = 300.0, 3600.0
"""The driver tells how an insert ended after 120 s (`compute.api_client.Limits`), and a deletion so
long after it could be sent. After these times the VM is read by name, or its deletion asked for
again."""
WITHDRAWN = "withdrawn"
"""Code of a deletion that `Withdraw` has ended."""


def apply_results(observed: ObservedState, tracked: TrackedState) -> TrackedState:
    """Return the tracked state after what happened since the last pass, without what is over."""
    if tracked.began is None and observed.nodes_at:
        tracked = replace(tracked, began=observed.now)
    nodes = dict(tracked.nodes)
    inserts, breakers = dict(tracked.inserts), dict(tracked.breakers)
    for event in (*observed.events, *_overdue(observed, tracked)):
        match event:
            case Inserted() if event.id in inserts:
                outcome = _Outcome(inserts.pop(event.id), event)
                for name in outcome.insert.names:
                    nodes[name] = _inserted(observed, nodes.get(name, NOTHING), name, outcome)
                _apply_to_breaker(breakers, observed.now, outcome)
            case Deleted(vm=vm):
                nodes[vm.name] = _deleted(observed, nodes.get(vm.name, NOTHING), event)
            case ProbeResult(name=name):
                take_answer = _reported if event.of_report else _probed
                nodes[name] = take_answer(observed, nodes.get(name, NOTHING), event)
            case Released():
                for name in event.names:
                    nodes[name] = replace(nodes.get(name, NOTHING), released_at=observed.now)
                for name in event.not_released:
                    nodes[name] = _not_released(observed, nodes.get(name, NOTHING), name)
    changed: tuple[str, ...] = ()
    if observed.events:
        before = tracked.nodes
        changed = tuple(name for name in nodes if nodes[name] is not before.get(name))
    read = Readings(
        observed.nodes, observed.nodes_at, observed.vms, observed.vms_at, observed.requests
    )
    fresh = tracked.read is None or not read.same_as(tracked.read)
    if fresh:
        for name in observed.powering_up():
            nodes[name] = _asked(observed, tracked, nodes.get(name, NOTHING), name)
        nodes = {
            name: record
            for name, old in nodes.items()
            if not (record := _without_what_is_over(observed, old, name)).empty
        }
    zones = tracked.zones | observed.zones
    return TrackedState(nodes, inserts, breakers, tracked.began, zones, read, fresh, changed)


def _overdue(observed: ObservedState, tracked: TrackedState) -> Iterator[Inserted]:
    """Yield ends of the inserts of which the driver has not told one: nobody waits for ever."""
    if not tracked.inserts:
        return
    told = {event.id for event in observed.events if isinstance(event, Inserted)}
    for insert in tracked.inserts.values():
        if insert.id not in told and observed.now > insert.sent_at + INSERT_S:
            yield Inserted(insert.id, whole=Failure("timeout", "how it ended was never told"))


def _advanced(record: NodeRecord, name: str, evidence: Evidence, at: float) -> NodeRecord:
    """Return a node's record after evidence that needs no action."""
    phase, _ = step(record.phase, evidence, name)
    return record.settled(at) if phase is Phase.SETTLED else record.to(phase, at)


# --- inserts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How an insert has ended."""

    insert: Insert
    event: Inserted

    @property
    def failures(self) -> Mapping[str, Failure]:
        """Name -> why it has no VM."""
        whole = self.event.whole
        of_all = dict.fromkeys(self.insert.names, whole) if whole else {}
        return {**of_all, **self.event.failed}

    @property
    def too_few(self) -> bool:
        """Whether it made some VMs, but not as many as it must."""
        made = len(self.insert.names) - len(self.failures)
        return 0 < made < self.insert.least


def _inserted(
    observed: ObservedState, record: NodeRecord, name: str, outcome: _Outcome
) -> NodeRecord:
    insert, failure = outcome.insert, outcome.failures.get(name)
    start = record.start
    own = start is not None and (record.insert, record.insert_for) == (insert.id, start.asked)
    if record.insert == insert.id:
        record = replace(record, insert="")
    if failure is None:
        record = replace(record, no_room=take(record.no_room, insert.choice.zone))
        if record.start is None:
            return record
        facts = record.vm or VmFacts(0)
        made = replace(facts, known_at=observed.now, pool=insert.choice.pool, lacking_at=0.0)
        return _advanced(
            replace(record, vm=made, lookup=None), name, Evidence.INSERTED, observed.now
        )
    # A job can't use VMs of several places: it is queued again, and its VMs are deleted.
    help_is = Remedy.NOTHING if outcome.too_few else remedy(failure)
    held_against = help_is if own else None
    return _refused(observed, record, name, insert.choice, failure, help_is=held_against)


def _refused(
    observed: ObservedState,
    record: NodeRecord,
    name: str,
    choice: Choice,
    failure: Failure,
    *,
    help_is: Remedy | None,
) -> NodeRecord:
    """Apply a failure; `help_is` None: of the insert of an earlier start, not held against this."""
    if remedy(failure) is Remedy.ELSEWHERE:
        record = replace(record, no_room=put(record.no_room, choice.zone, observed.now))
        if record.vm and record.vm.pool and record.vm.pool.zone == choice.zone:
            record = record.without_vm()
    start = record.start
    if start is None:
        return record
    match help_is:
        case Remedy.ELSEWHERE:
            start = replace(start, refused=(*start.refused, (choice, failure)))
        case Remedy.LATER:
            backoff_s = min(FIRST_BACKOFF_S * 2 ** max(start.attempts - 1, 0), LONGEST_BACKOFF_S)
            start = replace(start, again=observed.now + backoff_s, failure=failure)
        case Remedy.NOTHING:
            start = replace(start, permanent_error=f"{sentence(failure)} ({choice.pool})")
    record = replace(record, start=start)
    if not is_outcome_unknown(failure):
        # A VM that is listed as stopped is not from before one that was made now.
        record = replace(record, start=replace(start, inserted_at=-math.inf))
        return _advanced(record, name, Evidence.REFUSED, observed.now)
    # Only lists and the VM's name tell whether it can be asked for elsewhere.
    maybe = record.vm or VmFacts(observed.now, choice.pool)
    return _advanced(replace(record, vm=maybe), name, Evidence.UNKNOWN, observed.now)


def _apply_to_breaker(breakers: dict[CapacityPool, Breaker], now: float, outcome: _Outcome) -> None:
    insert, failures = outcome.insert, outcome.failures
    pool = insert.choice.pool
    before = breakers.get(pool)
    shortage = next(filter(is_shortage, failures.values()), None)
    if shortage:
        breakers[pool] = circuit_breaker.after_shortage(
            before, insert.id, shortage.code, now, insert.least
        )
    elif before and before.trial == insert.id:
        if len(failures) < len(insert.names):
            del breakers[pool]
        else:
            # The trial said nothing about the pool's room; the next insert may try it.
            breakers[pool] = circuit_breaker.untried(before)


# --- deletions, probes and releases ---------------------------------------------------------------


def _deleted(observed: ObservedState, record: NodeRecord, event: Deleted) -> NodeRecord:
    vm, failure = event.vm, event.failure
    if failure is None:
        gone = put(record.gone, vm.id, observed.now)
        return replace(record, deletions=take(record.deletions, vm.id), gone=gone)
    if failure.code == WITHDRAWN or vm.id not in observed.vms.ids:
        # Not wanted any more, or gone in the meantime.
        return replace(record, deletions=take(record.deletions, vm.id))
    before = record.deletions.get(vm.id, Deletion(vm))
    before = replace(before, failed_at=before.failed_at or observed.now)
    if record.start:
        record = replace(record, start=replace(record.start, deletion_failure=failure))
        deletion = replace(before, again=observed.now + DELETED_AGAIN_S)
    else:
        # After as long as it has failed; if SLURM asks for the node again, it is tried at once.
        failed_s = observed.now - before.failed_at
        wait_s = min(max(DELETED_AGAIN_S, failed_s), LATEST_DELETED_AGAIN_S)
        deletion = replace(before, again=observed.now + wait_s, urgent=False)
    return replace(record, deletions=put(record.deletions, vm.id, deletion))


def _reported(_: ObservedState, record: NodeRecord, event: ProbeResult) -> NodeRecord:
    if record.phase is not Phase.STUCK or record.start is None or event.failure:
        return record
    return replace(record, start=replace(record.start, report=event.report))


def _probed(observed: ObservedState, record: NodeRecord, event: ProbeResult) -> NodeRecord:
    lookup = record.lookup
    if lookup is None or event.zone not in lookup.asked:
        # The answer to an earlier search.
        return record
    if event.failure:
        # Without an answer nothing is known of that zone: it is asked again, not at once.
        again = observed.now + observed.timeouts.missing_s
        return replace(
            record, lookup=replace(lookup, asked=lookup.asked - {event.zone}, again=again)
        )
    if record.vm and event.exists:
        # A list will have it: this one, or the next one of the name in the zone.
        facts = replace(record.vm, known_at=observed.now, lacking_at=0.0)
        if event.id and facts.id and event.id != facts.id:
            facts = replace(facts, id="", running_at=0.0)
            record = record.to(Phase.CREATED, observed.now)
        return replace(record, vm=facts, lookup=None)
    if not event.exists or event.status in STOPPED:
        stopped = event.status if event.exists else lookup.stopped
        without = lookup.without | {event.zone}
        return replace(record, lookup=replace(lookup, without=without, stopped=stopped))
    found = _still_in_service(_advanced(record, event.name, Evidence.FOUND, observed.now), record)
    return replace(found, verified_at=observed.now)


def _not_released(observed: ObservedState, record: NodeRecord, name: str) -> NodeRecord:
    if record.phase is not Phase.RELEASED:
        return record
    waits = record.start is not None and observed.is_powering_up(name)
    if waits:
        return _advanced(record, name, Evidence.STILL_ASKED, observed.now)
    return _still_in_service(
        _advanced(record, name, Evidence.RELEASE_NOT_SHOWN, observed.now), record
    )


def _still_in_service(record: NodeRecord, before: NodeRecord) -> NodeRecord:
    """Return a settled record with what slurmctld has said of the node's service before."""
    return replace(
        record,
        preempted_at=before.preempted_at,
        not_responding_at=before.not_responding_at,
    )


# --- SLURM's newest states ------------------------------------------------------------------------


def _asked(
    observed: ObservedState, tracked: TrackedState, before: NodeRecord, name: str
) -> NodeRecord:
    """Begin a start where SLURM waits for a node, or asks for it again."""
    asked = observed.asked.get(name)
    record = _released(observed, before, name)
    if record.phase is Phase.RELEASED:
        return record
    if record.start is None or (asked is not None and asked > record.start.asked):
        start = _start(observed, tracked, name)
        known = before.start or _asked_since(tracked, name, start)
    elif (again := _after_gap(observed, tracked, record.start)) is None:
        return record
    elif again.doubted_at:
        return replace(record, start=again)
    else:
        start, known = again, False
    # What an insert has said since the last request belongs to that one.
    record = replace(record.settled(observed.now), start=start)
    if known:
        return _advanced(record, name, Evidence.ASKED, observed.now)
    # An earlier daemon, or an earlier start, may have made the VM in a zone that would not be
    # chosen now, and one list that lacks it does not prove that there is none.
    maybe = replace(record, vm=VmFacts(observed.now))
    return _advanced(maybe, name, Evidence.ASKED_BEFORE, observed.now)


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


def _after_gap(observed: ObservedState, tracked: TrackedState, start: Start) -> Start | None:
    """Return what becomes of a start that SLURM may have ended unseen; None: it stays as it is.

    slurmctld that was away has the same start when it is back, and ends it some seconds later. So
    the start is in doubt first; a node that powers up after that has another one. Its VM may be
    that of either, so it is kept: a healthy node is worth more than a verdict in time.
    """
    read_at = tracked.read.nodes_at if tracked.read else 0
    over = observed.nodes_at >= start.asked + observed.timeouts.verdict_s
    if over and 0 < read_at < observed.nodes_at - STALE_S:
        return replace(start, doubted_at=observed.nodes_at)
    ends_at = max(start.doubted_at, start.asked + observed.timeouts.resume_s) + ENDED_S
    if not start.doubted_at or observed.nodes_at < ends_at:
        return None
    return Start(start.doubted_at, start.oldest, noticed_at=observed.now)


def _start(observed: ObservedState, tracked: TrackedState, name: str) -> Start:
    asked, read = observed.asked.get(name), tracked.read
    read_at = read.nodes_at if read else 0
    if asked is not None and asked > observed.now - observed.timeouts.resume_s:
        before = read.nodes.get(name) if read and read_at > asked else None
        if before is None or before.power is Power.POWERING_UP:
            return Start(asked, asked - observed.timeouts.skew_s)
    # The request is lost. Or it is of an earlier start, and is kept for another node, or its file
    # could not be removed, or slurmctld was away. SLURM asked after it was read last, if it was:
    # some seconds ago, unless it did not answer, or this process was stopped.
    skew_s, first = observed.timeouts.skew_s, observed.now
    oldest = -math.inf if asked is None else asked - skew_s
    if 0 < read_at < observed.nodes_at:
        oldest, first = max(oldest, read_at - skew_s), max(read_at, first - STALE_S)
    return Start(first, oldest, noticed_at=observed.now)


def _released(observed: ObservedState, record: NodeRecord, name: str) -> NodeRecord:
    """Return what becomes of a release when slurmctld was read again."""
    if record.phase is not Phase.RELEASED:
        return record
    node = observed.nodes.get(name)
    away = node is None or (node.power in (Power.POWERING_DOWN, Power.OFF) and not node.down)
    newer = observed.nodes_at > record.since
    if observed.asked.get(name, 0) > record.since or (newer and away):
        return _advanced(record, name, Evidence.RELEASE_SHOWN, observed.nodes_at)
    if newer and record.start and node and node.power in (Power.POWERING_DOWN, Power.OFF):
        # It is down, and perhaps released again; when SLURM asks for it, that is a new start.
        record = replace(record.without_vm(), start=None)
    # By a new reading, not by the clock: slurmctld may be slow to apply an update.
    if record.released_at and observed.nodes_at > record.released_at + RELEASED_AGAIN_S:
        return _not_released(observed, record, name)
    return record


def _without_what_is_over(observed: ObservedState, before: NodeRecord, name: str) -> NodeRecord:
    record = _released(observed, before, name)
    if record.phase in POWERING_UP:
        if not observed.is_powering_up(name):
            record = _advanced(record, name, Evidence.NO_LONGER_ASKED, observed.nodes_at)
    elif record.phase is not Phase.RELEASED and record.in_doubt:
        node = observed.nodes.get(name)
        if node is None or node.power is not Power.UP or (node.leaving and not node.busy):
            record = record.settled(observed.nodes_at)
    return _without_old_vms(observed, record, name)


def _without_old_vms(observed: ObservedState, record: NodeRecord, name: str) -> NodeRecord:
    if record.deletions:
        # One that is under way tells its end by itself, mostly.
        left = {
            vm_id: deletion
            for vm_id, deletion in record.deletions.items()
            if vm_id in observed.vms.ids
            or (deletion.under_way and observed.now <= deletion.asked_at + DELETION_S)
        }
        if len(left) < len(record.deletions):
            record = replace(record, deletions=left)
    # The list of a zone that is not reached is older.
    if record.gone or record.no_room:
        old = observed.vms.ids if observed.vms.unreachable else frozenset()
        gone = _since(record.gone, observed.vms_at - observed.timeouts.listed_s, old)
        no_room = record.no_room
        if not observed.vms.unreachable:
            no_room = _since(no_room, observed.vms_at)
        if gone is not record.gone or no_room is not record.no_room:
            record = replace(record, gone=gone, no_room=no_room)
    if record.unknown_at and name not in observed.vms.by_name and not record.deletions:
        record = replace(record, unknown_at=0.0)
    if record.verified_at and observed.vms_at > record.verified_at:
        record = replace(record, verified_at=0.0)
    return record


def _since(
    times: Mapping[str, float], past: float, kept: Container[str] = ()
) -> Mapping[str, float]:
    if not times or min(times.values()) >= past:
        return times
    left = {key: when for key, when in times.items() if when >= past or key in kept}
    return left if len(left) < len(times) else times
