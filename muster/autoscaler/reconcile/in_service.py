"""Nodes in service: if the VM of a node has stopped or is gone, release the node."""

from dataclasses import replace

from muster.autoscaler.reconcile.model import Node, Power, Probe, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import present
from muster.autoscaler.reconcile.probes import spare
from muster.autoscaler.reconcile.release import Releases
from muster.autoscaler.reconcile.tracked import Miss, TrackedState

STOPPED = ("TERMINATED", "STOPPED", "SUSPENDED", "SUSPENDING")
"""States of a VM that has stopped. The next pass checks a VM that is STOPPING again."""
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


def check_in_service(
    observed: ObservedState, tracked: TrackedState, releases: Releases
) -> list[Probe]:
    """Release nodes in service that lost their VM; return the probes to make before that."""
    lost: list[str] = []
    before, tracked.preempted = tracked.preempted, {}
    for name, node in observed.nodes.items():
        # If a request is newer than slurmctld's states, the node is no longer in service.
        requested = observed.asked.get(name, 0) > observed.nodes_at
        if node.down and node.power is Power.OFF and _ours(node.reason):
            # SLURM gave up this node while no daemon ran. It never brings such nodes up again.
            releases.add(name, _why(node.reason))
        elif node.power is not UP or requested or (node.leaving and not node.busy):
            tracked.missing.pop(name, None)
            tracked.not_responding.pop(name, None)
        elif name not in tracked.released:
            if _preempted(node):
                tracked.preempted[name] = before.get(name, observed.now)
            if _check(observed, tracked, releases, node):
                lost.append(name)
    return _probes(observed, tracked, lost)


def _check(observed: ObservedState, tracked: TrackedState, releases: Releases, node: Node) -> bool:
    """Release a node if its VM does not work any more; return whether to probe the VM."""
    name = node.name
    not_responding = node.down and (node.not_responding or NOT_RESPONDING in node.reason)
    if node.down and not not_responding and _ours(node.reason):
        releases.add(name, _why(node.reason))
        return False
    vm = present(observed, tracked, name)
    if (node.drained or (node.down and not not_responding)) and not node.busy:
        # Keep the node: somebody wants to look at it, or at its disk.
        if node.invalid and not node.down and vm and _of_old_type(observed, vm):
            releases.add(
                name,
                f"its VM in {vm.zone} is of the type {vm.pool.kind}, which its set does not "
                "have any more",
            )
        return False
    if vm is None:
        return _missing(observed, tracked, releases, node)
    tracked.missing.pop(name, None)
    if vm.status in STOPPED:
        how = "was taken back (spot)" if vm.spot else f"is {vm.status}"
        releases.add(name, f"its VM in {vm.zone} {how}")
    elif not_responding:
        _not_responding(observed, tracked, releases, vm)
    else:
        tracked.not_responding.pop(name, None)
    return False


def _of_old_type(observed: ObservedState, vm: Vm) -> bool:
    """Whether the type of a VM is not in its set any more, because the definition has changed.

    If the set still has the type, a new VM does not help: SLURM expects too much of this type, and
    drains the new VM too.
    """
    node_set = observed.set_of(vm.name)
    types = {choice.pool.kind for choice in node_set.choices} if node_set else set()
    return bool(types) and vm.pool.kind not in types


def _preempted(node: Node) -> bool:
    """Whether Google takes its VM back; the reason alone can come from an earlier VM."""
    return node.leaving and PREEMPTED in node.reason


def _ours(reason: str) -> bool:
    return reason.startswith(OURS) or GAVE_UP in reason


def _why(reason: str) -> str:
    """The last reason: 24.11 appends it to earlier ones."""
    return reason.rpartition(" : ")[2].removeprefix(OURS).strip()


def _not_responding(
    observed: ObservedState, tracked: TrackedState, releases: Releases, vm: Vm
) -> None:
    since = tracked.not_responding.setdefault(vm.name, observed.nodes_at)
    if observed.nodes_at >= since + observed.limits.not_responding_s:
        releases.add(
            vm.name,
            f"its VM in {vm.zone} runs and slurmd has not answered for "
            f"{observed.limits.not_responding_s:.0f} s",
        )


def _missing(
    observed: ObservedState, tracked: TrackedState, releases: Releases, node: Node
) -> bool:
    """Whether to probe for a VM that is not in the list: it is gone only if all zones say so."""
    name = node.name
    if observed.vms_at == 0 or observed.vms_at < observed.nodes_at - observed.limits.missing_s:
        # The list may be from before the node was in service.
        return False
    if _preempted(node):
        # The node itself reported this; a list from before may be older than the VM.
        if observed.vms_at > tracked.preempted[name]:
            releases.add(name, "its VM was taken back (spot)")
        return False
    miss = tracked.missing.setdefault(name, Miss(observed.vms_at))
    zones = _zones(observed, name)
    if zones and zones <= miss.without:
        del tracked.missing[name]
        releases.add(name, "its VM is gone, and nobody here deleted it")
        return False
    return observed.vms_at >= miss.since + observed.limits.missing_s


def _probes(observed: ObservedState, tracked: TrackedState, names: list[str]) -> list[Probe]:
    """Probe for VMs in all zones of their sets; begin with those that are missing longest."""
    probes: list[Probe] = []
    most = spare(tracked)
    for name in sorted(names, key=lambda name: tracked.missing[name].since):
        if len(probes) >= most:
            break
        miss = tracked.missing[name]
        # No zones: the definition lost the node's set while the node was in service.
        due = _zones(observed, name) - miss.asked
        tracked.missing[name] = replace(miss, asked=miss.asked | due)
        probes += [Probe(name, zone) for zone in sorted(due)]
    return probes


def _zones(observed: ObservedState, name: str) -> frozenset[str]:
    node_set = observed.set_of(name)
    return frozenset(choice.zone for choice in node_set.choices) if node_set else frozenset()
