"""Nodes in service: if the VM of a node has stopped or is gone, release the node.

A list may be old, and of an earlier VM: what it says against a node is verified by the VM's name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import RUNNING, SEPARATOR, STOPPED, Node, Power, Probe, Vm
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
OURS = "muster:"
"""Muster's own reasons begin with this: nobody needs to look at such a node."""
GAVE_UP = "ResumeTimeout reached"
"""SLURM's reason for a node that it has given up; 24.11 appends it to an earlier reason."""
PREEMPTED = "muster: Google takes this spot VM back"
"""The reason that a spot VM sets when it leaves SLURM: roles/cloud_node, spot.py."""
NOT_RESPONDING = "Not responding"
"""slurmctld's reason for a node whose slurmd doesn't answer; 24.11 appends it to an earlier one."""


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
            if node.down and node.power is Power.OFF and _ours(node.reason):
                # SLURM gave up this node while no daemon ran. It never brings such nodes up again.
                release[name] = Release(Evidence.GIVEN_UP, _why(node.reason))
            continue
        if node.leaving and not node.busy:
            continue
        vm = vm_of(observed, before, name)
        flagged = node.down or node.drained or node.leaving
        if before is NOTHING and vm and not flagged and vm.status == RUNNING:
            # Nearly all of thousands of nodes: the quick way.
            continue
        record = _noted(observed, before, node)
        evidence = _evidence(observed, tracked.zones, record, node, vm)
        if evidence is not None:
            phase, act = step(record.phase, evidence, name)
            if act is Act.RELEASE:
                reason = _reason(observed, evidence, record, node, vm)
                release[name] = Release(evidence, reason)
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
    if _is_not_responding(node):
        not_responding_at = record.not_responding_at or observed.now
    if _is_preempted(node):
        preempted_at = record.preempted_at or observed.now
    if (not_responding_at, preempted_at) == (record.not_responding_at, record.preempted_at):
        return record
    return replace(record, not_responding_at=not_responding_at, preempted_at=preempted_at)


def _in(phase: Phase, observed: ObservedState, record: NodeRecord) -> NodeRecord:
    if phase is record.phase:
        return record
    lookup = Lookup(observed.now) if phase is Phase.VERIFYING else None
    return replace(record.to(phase, observed.vms_at), lookup=lookup)


def _evidence(
    observed: ObservedState, zones: frozenset[str], record: NodeRecord, node: Node, vm: Vm | None
) -> Evidence | None:
    """What is known of a node in service; None: nothing new. `zones`: where its VM may be."""
    if node.down or node.drained:
        not_responding = _is_not_responding(node)
        if node.down and not not_responding and _ours(node.reason):
            return Evidence.GIVEN_UP
        if (node.drained or not not_responding) and not node.busy:
            outdated = node.invalid and not node.down and vm and _is_outdated(observed, vm)
            return Evidence.OUTDATED if outdated else Evidence.KEPT
    evidence: Evidence | None = Evidence.WORKING
    if vm is None:
        evidence = _listed_nowhere(observed, zones, record)
    elif vm.status in STOPPED:
        evidence = _listed_stopped(observed, zones, record)
    since = record.not_responding_at
    over = since and observed.nodes_at >= since + observed.timeouts.not_responding_s
    if over and evidence not in (Evidence.ABSENT, Evidence.SHUT_DOWN):
        # Whether its VM runs or not: SLURM has ended its jobs.
        return Evidence.NOT_RESPONDING
    return evidence


def _listed_nowhere(
    observed: ObservedState, zones: frozenset[str], record: NodeRecord
) -> Evidence | None:
    timeouts, lookup = observed.timeouts, record.lookup
    if observed.vms_at <= record.verified_at or (
        # The list may be from before the node was in service.
        observed.vms_at < observed.nodes_at - timeouts.missing_s
    ):
        return None
    if lookup and (found := _found(observed, zones, record, lookup)):
        return found
    if record.preempted_at:
        # The node itself reported this; a list from before may be older than the VM.
        return Evidence.TAKEN_BACK if observed.vms_at > record.preempted_at else None
    if lookup is None:
        return Evidence.LISTED_NOWHERE
    long = observed.vms_at >= lookup.since + timeouts.missing_s
    return Evidence.LISTED_NOWHERE_LONG if long else Evidence.LISTED_NOWHERE


def _listed_stopped(
    observed: ObservedState, zones: frozenset[str], record: NodeRecord
) -> Evidence | None:
    if observed.vms_at <= record.verified_at:
        return None
    found = _found(observed, zones, record, record.lookup) if record.lookup else None
    return found or Evidence.LISTED_STOPPED


def _found(
    observed: ObservedState, zones: frozenset[str], record: NodeRecord, lookup: Lookup
) -> Evidence | None:
    """What the search by name has shown."""
    # If its slurmd does not answer either, it is on no VM that works in a zone without an answer.
    not_responding = record.not_responding_at > 0
    # Its VM may be in a zone that no set has any more, and that was not reached since this daemon
    # began.
    if not not_responding:
        zones |= observed.vms.unreachable
    if not zones:
        # The cluster has no node set and no VM any more.
        long = observed.vms_at >= lookup.since + observed.timeouts.listed_s
        return Evidence.ABSENT if long else None
    if zones <= lookup.without:
        return Evidence.SHUT_DOWN if lookup.stopped else Evidence.ABSENT
    return Evidence.SHUT_DOWN if lookup.stopped and not_responding else None


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
            return _why(node.reason)
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


def _is_outdated(observed: ObservedState, vm: Vm) -> bool:
    """Whether the type of a VM is not in its set any more, because the definition has changed.

    If the set still has the type, a new VM does not help: SLURM expects too much of this type, and
    drains the new VM too.
    """
    node_set = observed.set_of(vm.name)
    types = {choice.pool.kind for choice in node_set.choices} if node_set else set()
    return bool(types) and vm.pool.kind not in types


def _is_not_responding(node: Node) -> bool:
    """Whether SLURM has set it down for that: the slurmd of one that somebody set down may too."""
    somebody_s = node.by_hand and not _ours(node.reason)
    return node.down and (NOT_RESPONDING in node.reason or (node.not_responding and not somebody_s))


def _is_preempted(node: Node) -> bool:
    """Whether Google takes its VM back: the node then also drains itself.

    The reason alone can come from an earlier VM.
    """
    return node.leaving and node.drained and PREEMPTED in node.reason


def _ours(reason: str) -> bool:
    """Whether Muster or SLURM has given up the node; somebody's words may contain GAVE_UP, too.

    The last reason decides: an old one of Muster's may stay on a node that is in service again.
    """
    return _last(reason).startswith((OURS, GAVE_UP))


def _why(reason: str) -> str:
    return _last(reason).removeprefix(OURS).strip()


def _last(reason: str) -> str:
    """The last reason: 24.11 appends it to earlier ones."""
    return reason.rpartition(SEPARATOR)[2]
