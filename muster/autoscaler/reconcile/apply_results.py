"""Apply the results of actions to the tracked state, and drop from it what is over."""

import math
from dataclasses import replace

from muster.autoscaler.reconcile import circuit_breaker
from muster.autoscaler.reconcile.model import (
    Deleted,
    Failure,
    Insert,
    Inserted,
    Power,
    ProbeResult,
    Vm,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.retry_policy import Remedy, remedy, sentence
from muster.autoscaler.reconcile.tracked import Deletion, TrackedState, put, take

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 30.0
"""Wait before an insert that failed temporarily is tried again; it doubles with each try."""
RELEASED_AGAIN_S = 10.0
"""A node whose state in slurmctld has not changed so long after its release is released again."""
EARLIER_S = 5.0
"""A request so old when it is first read: an earlier daemon may have made the VM, in a zone that
this one would not choose, and one list that lacks it does not prove that there is none."""
DELETED_AGAIN_S, LATEST_DELETED_AGAIN_S = 10.0, 1800.0
"""Wait before a deletion that failed is tried again, at least and at most."""
LISTED_S = 150.0
"""So long lists may have a VM that is gone. One that is listed after that is there, although Google
has said that it is not."""


def apply_results(observed: ObservedState, tracked: TrackedState) -> None:
    """Change `tracked` by what happened since the last pass, and drop what is over."""
    for event in observed.events:
        match event:
            case Inserted():
                _inserted(observed, tracked, event)
            case Deleted(vm, failure):
                if failure is None:
                    take(tracked.deleting, vm.name, vm.id)
                    put(tracked.gone, vm.name, vm.id, observed.now)
                else:
                    _not_deleted(observed, tracked, vm, failure)
            case ProbeResult():
                _probed(tracked, event)
    _forget(observed, tracked)


def _not_deleted(observed: ObservedState, tracked: TrackedState, vm: Vm, failure: Failure) -> None:
    """Track when to try again: after as long as it has failed, or soon if a node waits for it."""
    before = tracked.deleting.get(vm.name, {}).get(vm.id, Deletion(observed.now))
    wait_s, urgent = DELETED_AGAIN_S, before.urgent
    if vm.name in tracked.powering_up:
        tracked.undeleted[vm.name] = failure
    else:
        wait_s = min(max(wait_s, observed.now - before.since), LATEST_DELETED_AGAIN_S)
        # If SLURM asks for the node again, it is tried at once.
        urgent = False
    deletion = Deletion(before.since, observed.now + wait_s, urgent)
    put(tracked.deleting, vm.name, vm.id, deletion)


def _inserted(observed: ObservedState, tracked: TrackedState, event: Inserted) -> None:
    ask = tracked.asks.pop(event.id, None)
    if ask is None:
        return
    pool = ask.choice.pool
    failures = dict.fromkeys(ask.names, event.whole) if event.whole else event.failed
    for name in ask.names:
        if tracked.asking.get(name) == ask.id:
            del tracked.asking[name]
        failure = failures.get(name)
        if failure is None:
            tracked.made[name] = (observed.now, pool)
            tracked.lacking.pop(name, None)
            take(tracked.no_room, name, ask.choice.zone)
        else:
            _refused(observed, tracked, ask, name, failure)
    shortage = next(
        (why for why in failures.values() if why and remedy(why) is Remedy.ELSEWHERE), None
    )
    before = tracked.breakers.get(pool)
    if shortage:
        tracked.breakers[pool] = circuit_breaker.after_shortage(
            before, ask.id, shortage.code, observed.now, ask.least
        )
    elif before and before.trial == ask.id:
        made = len(failures) < len(ask.names)
        if made:
            del tracked.breakers[pool]
        else:
            # The trial said nothing about the pool's room; the next insert may try it.
            tracked.breakers[pool] = circuit_breaker.untried(before)


def _refused(
    observed: ObservedState, tracked: TrackedState, ask: Insert, name: str, failure: Failure
) -> None:
    match remedy(failure):
        case Remedy.ELSEWHERE:
            tracked.refused[name] = (*tracked.refused.get(name, ()), (ask.choice, failure))
            zone = ask.choice.zone
            put(tracked.no_room, name, zone, observed.now)
            pool = tracked.made.get(name, (0.0, None))[1]
            if pool and pool.zone == zone:
                del tracked.made[name]
        case Remedy.LATER:
            tries = tracked.attempts.get(name, 1)
            backoff_s = min(FIRST_BACKOFF_S * 2 ** (tries - 1), LONGEST_BACKOFF_S)
            tracked.backoff[name] = (observed.now + backoff_s, failure)
        case Remedy.NOTHING:
            tracked.permanent_error[name] = f"{sentence(failure)} ({ask.choice.pool})"


def _probed(tracked: TrackedState, event: ProbeResult) -> None:
    if event.name in tracked.inspecting:
        tracked.said[event.name] = event.report
        return
    miss = tracked.missing.get(event.name)
    if miss is None:
        return
    if event.exists:
        del tracked.missing[event.name]
    elif event.failure:
        # Without an answer nothing is known: the search starts again.
        del tracked.missing[event.name]
    else:
        tracked.missing[event.name] = replace(miss, without=miss.without | {event.zone})


def _forget(observed: ObservedState, tracked: TrackedState) -> None:
    """Drop what is over; what is tracked of a node that powers up ends when it is up."""
    for name, released_at in list(tracked.released.items()):
        node = observed.nodes.get(name)
        moved = node is None or (not node.down and node.power is not Power.POWERING_UP)
        if (
            observed.asked.get(name, 0) > released_at
            or (observed.nodes_at > released_at and moved)
            # By a new reading, not by the clock: slurmctld may be slow to apply an update.
            or observed.nodes_at > released_at + RELEASED_AGAIN_S
        ):
            del tracked.released[name]
    powering_up = set(observed.powering_up())
    for name in powering_up:
        if name not in tracked.powering_up:
            # What an insert has said since the last request belongs to that one.
            _drop(tracked, name)
            tracked.powering_up[name] = observed.asked.get(name, observed.now)
            if tracked.powering_up[name] < observed.now - EARLIER_S:
                tracked.made[name] = (observed.now, None)
        if observed.asked.get(name, 0) > tracked.powering_up[name]:
            # SLURM gave it up and asks again.
            _drop(tracked, name)
            tracked.powering_up[name] = observed.asked[name]
    for name in [name for name in tracked.powering_up if name not in powering_up]:
        _drop(tracked, name)
    _forget_vms(observed, tracked)


def _forget_vms(observed: ObservedState, tracked: TrackedState) -> None:
    for name, deletions in list(tracked.deleting.items()):
        for vm_id, deletion in deletions.items():
            # One that is under way tells its end by itself.
            if deletion.again < math.inf and vm_id not in observed.vm_ids:
                take(tracked.deleting, name, vm_id)
    for times, past in (
        (tracked.no_room, observed.vms_at),
        (tracked.gone, observed.vms_at - LISTED_S),
    ):
        for name, entries in list(times.items()):
            for key, when in entries.items():
                if when < past:
                    take(times, name, key)


def _drop(tracked: TrackedState, name: str) -> None:
    for facts in (
        tracked.powering_up,
        tracked.attempts,
        tracked.made,
        tracked.lacking,
        tracked.undeleted,
        tracked.refused,
        tracked.backoff,
        tracked.permanent_error,
        tracked.running,
        tracked.said,
        tracked.inspecting,
    ):
        facts.pop(name, None)
