"""What the end of an insert means for its nodes and its capacity pool; pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from muster.autoscaler.reconcile import backoff, circuit_breaker
from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import Choice, Failure, Insert, Inserted
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, TrackedState, VmFacts, put, take
from muster.autoscaler.reconcile.retry_policy import (
    Remedy,
    is_outcome_unknown,
    is_shortage,
    remedy,
    sentence,
)
from muster.autoscaler.reconcile.transitions import Evidence, advanced

INSERT_S = 300.0
"""The driver tells how an insert ended after 120 s (`compute.api_client.Limits`). After this time
the VM is read by name."""


@dataclass(frozen=True, slots=True)
class Outcome:
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


def overdue(observed: ObservedState, tracked: TrackedState) -> Iterator[Inserted]:
    """Yield ends of the inserts of which the driver has not told one: nobody waits for ever."""
    if not tracked.inserts:
        return
    told = {event.id for event in observed.events if isinstance(event, Inserted)}
    for insert in tracked.inserts.values():
        if insert.id not in told and observed.now > insert.sent_at + INSERT_S:
            why = Failure("timeout", "how it ended was never told")
            yield Inserted(insert.id, whole=why, at=observed.now)


def inserted(record: NodeRecord, name: str, outcome: Outcome) -> NodeRecord:
    """Return a node's record after the end of an insert for it."""
    insert, at, failure = outcome.insert, outcome.event.at, outcome.failures.get(name)
    start = record.start
    own = start is not None and start.insert == insert.id
    if record.insert == insert.id:
        record = replace(record, insert="")
    if failure is None:
        record = replace(record, no_room=take(record.no_room, insert.choice.zone))
        if record.start is None:
            return record
        facts = record.vm or VmFacts(0)
        made = replace(facts, known_at=at, pool=insert.choice.pool, lacking_at=0.0)
        return advanced(replace(record, vm=made, lookup=None), name, Evidence.INSERTED, at)
    # A job can't use VMs of several places: it is queued again, and its VMs are deleted.
    help_is = Remedy.NOTHING if outcome.too_few else remedy(failure)
    held_against = help_is if own else None
    return _refused(record, name, insert.choice, failure, at, help_is=held_against)


def _refused(
    record: NodeRecord,
    name: str,
    choice: Choice,
    failure: Failure,
    at: float,
    *,
    help_is: Remedy | None,
) -> NodeRecord:
    """Apply a failure; `help_is` None: of the insert of an earlier start, not held against this."""
    if remedy(failure) is Remedy.ELSEWHERE:
        record = replace(record, no_room=put(record.no_room, choice.zone, at))
        if record.vm and record.vm.pool and record.vm.pool.zone == choice.zone:
            record = record.without_vm()
    start = record.start
    if start is None:
        return record
    match help_is:
        case Remedy.ELSEWHERE:
            start = replace(start, refused=(*start.refused, (choice, failure)))
        case Remedy.LATER:
            again = at + backoff.before_insert_s(start.attempts)
            start = replace(start, again=again, failure=failure)
        case Remedy.NOTHING:
            start = replace(start, permanent_error=f"{sentence(failure)} ({choice.pool})")
    if not is_outcome_unknown(failure):
        # No VM was made, so a stopped one in the list is the node's.
        start = replace(start, inserted_at=-math.inf)
        return advanced(replace(record, start=start), name, Evidence.REFUSED, at)
    # Only lists and the VM's name tell whether it can be asked for elsewhere.
    maybe = record.vm or VmFacts(at, choice.pool)
    return advanced(replace(record, start=start, vm=maybe), name, Evidence.UNKNOWN, at)


def breaker_after(before: Breaker | None, outcome: Outcome) -> Breaker | None:
    """Return the circuit breaker of an insert's pool after its end; None: it is closed."""
    insert, at, failures = outcome.insert, outcome.event.at, outcome.failures
    shortage = next(filter(is_shortage, failures.values()), None)
    if shortage:
        return circuit_breaker.after_shortage(before, insert.id, shortage.code, at, insert.least)
    if before is None or before.trial != insert.id:
        return before
    if len(failures) < len(insert.names):
        return None
    # The trial said nothing about the pool's room; the next insert may try it.
    return circuit_breaker.untried(before)
