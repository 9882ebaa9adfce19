"""What the answer of a probe means for its node; pure."""

from dataclasses import replace

from muster.autoscaler.reconcile.model import STOPPED, ProbeResult
from muster.autoscaler.reconcile.observed import Timeouts
from muster.autoscaler.reconcile.records import Lookup, NodeRecord, Phase, VmFacts
from muster.autoscaler.reconcile.transitions import Evidence, advanced


def reported(record: NodeRecord, event: ProbeResult) -> NodeRecord:
    """Return a node's record after an answer to the question for its VM's report."""
    if record.phase is not Phase.STUCK or record.vm is None or event.failure:
        return record
    return replace(record, vm=replace(record.vm, report=event.report))


def probed(timeouts: Timeouts, record: NodeRecord, event: ProbeResult) -> NodeRecord:
    """Return a node's record after an answer of a zone to the search for its VM."""
    lookup = record.lookup
    if lookup is None or event.zone not in lookup.asked:
        # The answer to an earlier search.
        return record
    if event.failure:
        # Without an answer nothing is known of that zone: it is asked again, not at once.
        asked, again = lookup.asked - {event.zone}, event.at + timeouts.missing_s
        return replace(record, lookup=replace(lookup, asked=asked, again=again))
    if record.vm and event.exists:
        return _exists(record, record.vm, event)
    if not event.exists or event.status in STOPPED:
        return replace(record, lookup=_without_zone(lookup, event))
    found = advanced(record, event.name, Evidence.FOUND, event.at).with_service_of(record)
    return replace(found, verified_at=event.at)


def _exists(record: NodeRecord, vm: VmFacts, event: ProbeResult) -> NodeRecord:
    """SLURM waits for the node, and a list will have its VM: this one, or the next of its name."""
    facts = replace(vm, known_at=event.at, lacking_at=0.0)
    if event.id and facts.id and event.id != facts.id:
        facts = replace(facts, id="", running_at=0.0, probed=False, report=None)
        record = record.to(Phase.CREATED, event.at)
    return replace(record, vm=facts, lookup=None)


def _without_zone(lookup: Lookup, event: ProbeResult) -> Lookup:
    stopped = event.status if event.exists else lookup.stopped
    return replace(lookup, without=lookup.without | {event.zone}, stopped=stopped)
