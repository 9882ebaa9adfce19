"""Apply the results of actions to the records; pure, and nothing is decided."""

from dataclasses import replace

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.delete_results import deleted
from muster.autoscaler.reconcile.insert_results import Outcome, breaker_after, inserted, overdue
from muster.autoscaler.reconcile.model import (
    CapacityPool,
    Deleted,
    Inserted,
    ProbeResult,
    Released,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.probe_results import probed, reported
from muster.autoscaler.reconcile.records import NOTHING, TrackedState
from muster.autoscaler.reconcile.release_results import not_released


def apply_results(observed: ObservedState, tracked: TrackedState) -> TrackedState:
    """Return the tracked state after the results since the last pass."""
    events = (*observed.events, *overdue(observed, tracked))
    if not events:
        return replace(tracked, changed=()) if tracked.changed else tracked
    nodes = dict(tracked.nodes)
    inserts, breakers = dict(tracked.inserts), dict(tracked.breakers)
    for event in events:
        match event:
            case Inserted() if event.id in inserts:
                outcome = Outcome(inserts.pop(event.id), event)
                for name in outcome.insert.names:
                    nodes[name] = inserted(nodes.get(name, NOTHING), name, outcome)
                _apply_to_breaker(breakers, outcome)
            case Deleted(vm=vm):
                nodes[vm.name] = deleted(nodes.get(vm.name, NOTHING), event)
            case ProbeResult(name=name, of_report=True):
                nodes[name] = reported(nodes.get(name, NOTHING), event)
            case ProbeResult(name=name):
                nodes[name] = probed(observed.timeouts, nodes.get(name, NOTHING), event)
            case Released():
                for name in event.names:
                    nodes[name] = replace(nodes.get(name, NOTHING), released_at=event.at)
                for name in event.not_released:
                    nodes[name] = not_released(observed, nodes.get(name, NOTHING), name, event.at)
    changed = tuple(name for name in nodes if nodes[name] is not tracked.nodes.get(name))
    return replace(tracked, nodes=nodes, inserts=inserts, breakers=breakers, changed=changed)


def _apply_to_breaker(breakers: dict[CapacityPool, Breaker], outcome: Outcome) -> None:
    pool = outcome.insert.choice.pool
    after = breaker_after(breakers.get(pool), outcome)
    if after:
        breakers[pool] = after
    else:
        breakers.pop(pool, None)
