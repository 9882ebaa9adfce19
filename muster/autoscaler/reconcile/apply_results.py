"""What is learnt from the ends of actions, and what is forgotten; pure but for the tracked."""

from dataclasses import replace

from muster.autoscaler.reconcile import circuit_breaker
from muster.autoscaler.reconcile.model import Deleted, Failure, Insert, Inserted, Power, ProbeResult
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.retry_policy import Remedy, remedy, sentence
from muster.autoscaler.reconcile.tracked import TrackedState, put, take

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 30.0
"""Before an insert that failed for a passing reason is tried again."""
RELEASED_AGAIN_S = 10.0
"""A node that slurmctld shows unmoved so long after it was released is released again."""
EARLIER_S = 5.0
"""SLURM asked so long before we heard of it: an earlier self may have made the VM, at a place that
we would not choose, and one list that lacks it does not say that there is none."""
DELETED_AGAIN_S = 10.0
"""After a deletion that failed."""


def apply_results(observed: ObservedState, tracked: TrackedState) -> None:
    """Put into the tracked what happened since the last plan, and drop what is over."""
    for event in observed.events:
        match event:
            case Inserted():
                _inserted(observed, tracked, event)
            case Deleted(name, zone, failure):
                if failure is None:
                    take(tracked.deleting, name, zone)
                    _gone(observed, tracked, name, zone)
                else:
                    put(tracked.deleting, name, zone, observed.now + DELETED_AGAIN_S)
                    if name in tracked.powering_up:
                        tracked.undeleted[name] = failure
            case ProbeResult():
                _seen(tracked, event)
    _forget(observed, tracked)


def _gone(observed: ObservedState, tracked: TrackedState, name: str, zone: str) -> None:
    """There is no VM there now, whatever older lists have."""
    put(tracked.gone, name, zone, observed.now)
    pool = tracked.made.get(name, (0.0, None))[1]
    if pool and pool.zone == zone:
        del tracked.made[name]


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
            take(tracked.gone, name, ask.choice.zone)
        else:
            _refused(observed, tracked, ask, name, failure)
    short = next(
        (each for each in failures.values() if each and remedy(each) is Remedy.ELSEWHERE), None
    )
    before = tracked.breakers.get(pool)
    if short:
        tracked.breakers[pool] = circuit_breaker.after_shortage(
            before, ask.id, short.code, observed.now, ask.least
        )
    elif before and before.trial == ask.id:
        made = len(failures) < len(ask.names)
        if made:
            del tracked.breakers[pool]
        else:
            # It was not tried after all; the next ask may.
            tracked.breakers[pool] = circuit_breaker.untried(before)


def _refused(
    observed: ObservedState, tracked: TrackedState, ask: Insert, name: str, failure: Failure
) -> None:
    match remedy(failure):
        case Remedy.ELSEWHERE:
            tracked.refused[name] = (*tracked.refused.get(name, ()), (ask.choice, failure))
            # Google lists a VM while it looks for room, and takes it back.
            _gone(observed, tracked, name, ask.choice.zone)
        case Remedy.LATER:
            tries = tracked.attempts.get(name, 1)
            pause_s = min(FIRST_BACKOFF_S * 2 ** (tries - 1), LONGEST_BACKOFF_S)
            tracked.backoff[name] = (observed.now + pause_s, failure)
        case Remedy.NOTHING:
            tracked.permanent_error[name] = f"{sentence(failure)} ({ask.choice.pool})"


def _seen(tracked: TrackedState, event: ProbeResult) -> None:
    if event.name in tracked.inspecting:
        tracked.said[event.name] = event.report
        return
    miss = tracked.missing.get(event.name)
    if miss is None:
        return
    if event.exists:
        del tracked.missing[event.name]
    elif event.failure:
        # No answer is none: all begins anew.
        del tracked.missing[event.name]
    else:
        tracked.missing[event.name] = replace(miss, without=miss.without | {event.zone})


def _forget(observed: ObservedState, tracked: TrackedState) -> None:
    """Drop what is over: what is known of a node's rise ends with it."""
    for name, released_at in list(tracked.released.items()):
        node = observed.nodes.get(name)
        moved = node is None or (not node.down and node.power is not Power.POWERING_UP)
        if (
            observed.asked.get(name, 0) > released_at
            or (observed.nodes_at > released_at and moved)
            # Not by the clock: slurmctld may be slow to take what it is told.
            or observed.nodes_at > released_at + RELEASED_AGAIN_S
        ):
            del tracked.released[name]
    powering_up = set(observed.powering_up())
    for name in powering_up:
        if name not in tracked.powering_up:
            # What an insert has said since the node was wanted last is of then.
            _drop(tracked, name)
            tracked.powering_up[name] = observed.asked.get(name, observed.now)
            if tracked.powering_up[name] < observed.now - EARLIER_S:
                tracked.made[name] = (observed.now, None)
        if observed.asked.get(name, 0) > tracked.powering_up[name]:
            # SLURM gave it up and asks anew.
            _drop(tracked, name)
            tracked.powering_up[name] = observed.asked[name]
    for name in [name for name in tracked.powering_up if name not in powering_up]:
        _drop(tracked, name)
    for of, past in ((tracked.deleting, observed.now), (tracked.gone, observed.vms_at)):
        for name, zones in list(of.items()):
            for zone, when in zones.items():
                if when < past:
                    take(of, name, zone)


def _drop(tracked: TrackedState, name: str) -> None:
    for of in (
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
        of.pop(name, None)
