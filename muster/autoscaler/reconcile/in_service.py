"""Nodes in service: if the VM of a node has stopped or is gone, release the node.

A list may be old, and of an earlier VM: what it says against a node is verified by the VM's name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.in_service_rules import evidence_of
from muster.autoscaler.reconcile.model import RUNNING, Node, Power, Probe, Vm
from muster.autoscaler.reconcile.node_reasons import (
    given_up_why,
    is_given_up,
    is_not_responding,
    is_preempted,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.probes import Places
from muster.autoscaler.reconcile.records import (
    NOTHING,
    Lookup,
    NodeRecord,
    Phase,
    TrackedState,
)
from muster.autoscaler.reconcile.transitions import Act, Evidence, step
from muster.autoscaler.reconcile.verdicts import Release, Verdicts
from muster.autoscaler.reconcile.vms import vm_of

UP = Power.UP
"""Read only once: in Python 3.11 this takes longer than all other checks of most nodes."""


def check_in_service(observed: ObservedState, tracked: TrackedState) -> Verdicts:
    """Release nodes in service that lost their VM; read VMs by name before that."""
    records: dict[str, NodeRecord] = {}
    release: dict[str, Release] = {}
    doubtful: dict[str, NodeRecord] = {}
    for name, node in _to_check(observed, tracked):
        before = tracked.nodes.get(name, NOTHING)
        # If a request is newer than slurmctld's states, they say nothing of it.
        if before.phase is Phase.RELEASED or observed.asked.get(name, 0) > observed.nodes_at:
            continue
        if node.power is not UP:
            if node.down and node.power is Power.OFF and is_given_up(node):
                # SLURM gave up this node while no daemon ran. It never brings such nodes up again.
                release[name] = Release(Evidence.GIVEN_UP, given_up_why(node))
            continue
        if node.leaving and not node.busy:
            continue
        vm = vm_of(observed, before, name)
        flagged = node.down or node.drained or node.leaving
        if before is NOTHING and vm and not flagged and vm.status == RUNNING:
            # Nearly all of thousands of nodes: the quick way.
            continue
        record = _noted(observed, before, node)
        evidence = evidence_of(observed, tracked, record, node, vm)
        phase, act = step(record.phase, evidence, name)
        if act is Act.RELEASE:
            release[name] = Release(evidence, _reason(observed, evidence, record, node, vm))
        else:
            record = _in(phase, observed, record)
            if act is Act.LOOK_UP:
                doubtful[name] = record
        if record is not before:
            records[name] = record
    probes, asked = _probes(observed, tracked, doubtful)
    return Verdicts(records | asked, release=release, actions=probes)


def _to_check(observed: ObservedState, tracked: TrackedState) -> Iterable[tuple[str, Node]]:
    """All nodes if anything was read since the last pass, else those whose VMs are looked up."""
    if tracked.fresh:
        return observed.nodes.items()
    verified = (name for name, record in tracked.nodes.items() if record.lookup)
    return [(name, observed.nodes[name]) for name in verified if name in observed.nodes]


def _noted(observed: ObservedState, record: NodeRecord, node: Node) -> NodeRecord:
    """Track since when a node doesn't answer, or leaves because Google takes its VM back."""
    not_responding_at = preempted_at = 0.0
    if is_not_responding(node):
        not_responding_at = record.not_responding_at or observed.now
    if is_preempted(node):
        preempted_at = record.preempted_at or observed.now
    if (not_responding_at, preempted_at) == (record.not_responding_at, record.preempted_at):
        return record
    return replace(record, not_responding_at=not_responding_at, preempted_at=preempted_at)


def _in(phase: Phase, observed: ObservedState, record: NodeRecord) -> NodeRecord:
    if phase is record.phase:
        return record
    lookup = Lookup(observed.now) if phase is Phase.VERIFYING else None
    return replace(record.to(phase, observed.vms_at), lookup=lookup)


def _probes(
    observed: ObservedState,
    tracked: TrackedState,
    doubtful: Mapping[str, NodeRecord],
) -> tuple[list[Probe], dict[str, NodeRecord]]:
    """Read VMs by name where they may be; begin with those that are missing longest."""
    probes: list[Probe] = []
    records: dict[str, NodeRecord] = {}
    places = Places(tracked)
    for name in sorted(doubtful, key=lambda name: doubtful[name].since):
        lookup = doubtful[name].lookup or Lookup(observed.now)
        if observed.vms_at < lookup.again:
            continue
        # In each zone, though a list has it in one: that may be an earlier VM.
        due = places.take(tracked.zones - lookup.asked)
        if due:
            looked = replace(lookup, asked=lookup.asked | due)
            records[name] = replace(doubtful[name], lookup=looked)
            probes += [Probe(name, zone) for zone in sorted(due)]
    return probes, records


def _reason(
    observed: ObservedState, evidence: Evidence, record: NodeRecord, node: Node, vm: Vm | None
) -> str:
    its_vm = f"its VM in {vm.zone}" if vm else "its VM"
    match evidence:
        case Evidence.GIVEN_UP:
            return given_up_why(node)
        case Evidence.OUTDATED:
            kind = f" {vm.pool.kind}" if vm else ""
            return f"{its_vm} is of the type{kind}, which its set does not have any more"
        case Evidence.NOT_RESPONDING:
            return _not_responding(observed, vm)
        case Evidence.ABSENT if not record.preempted_at:
            return "its VM is gone, and nobody here deleted it"
        case Evidence.SHUT_DOWN if vm and not vm.spot and record.lookup:
            return f"{its_vm} is {record.lookup.stopped}"
    if evidence is Evidence.ABSENT:
        its_vm = "its VM"
    spot = record.preempted_at or (vm and vm.spot)
    return f"{its_vm} was taken back (spot)" if spot else f"{its_vm} has stopped"


def _not_responding(observed: ObservedState, vm: Vm | None) -> str:
    why = f"slurmd has not answered for {observed.timeouts.not_responding_s:.0f} s"
    if vm is None:
        return f"{why}, and no list has its VM"
    return f"its VM in {vm.zone} {'runs' if vm.status == RUNNING else f'is {vm.status}'} and {why}"
