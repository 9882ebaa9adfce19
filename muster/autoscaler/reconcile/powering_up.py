"""Nodes that SLURM waits for: released when their VMs' states or the time say so.

Each stage has its own deadline, so that a reason says where the start ended: asked for, VM runs,
booted, registered (then SLURM takes the node into service).
"""

from muster.autoscaler.reconcile.model import Probe, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.probes import spare
from muster.autoscaler.reconcile.release import Releases
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.tracked import TrackedState

COMING = ("PROVISIONING", "STAGING", "PENDING", "REPAIRING")
RUNNING = "RUNNING"
LEAVING = ("STOPPING", "PENDING_STOP", "DEPROVISIONING")
PROBE_S = 20.0
"""How long to wait for a VM's report of its boot."""


def check_powering_up(
    observed: ObservedState, tracked: TrackedState, releases: Releases
) -> list[Probe]:
    """Release the nodes that will not come in time; return the probes due before that."""
    hung = [
        vm
        for name in observed.powering_up()
        if name not in tracked.released and (vm := _check(observed, tracked, releases, name))
    ]
    # Those whose time was over first come first; the others are released without a report.
    hung.sort(key=lambda vm: tracked.running[vm.name])
    due = [vm for vm in hung if vm.name not in tracked.released][: spare(tracked)]
    tracked.inspecting |= {vm.name: observed.now for vm in due}
    return [Probe(vm.name, vm.zone, report=True) for vm in due]


def _check(
    observed: ObservedState, tracked: TrackedState, releases: Releases, name: str
) -> Vm | None:
    """Release a node that will not come; return its VM if that is to be probed for its report."""
    begun = tracked.powering_up[name]
    limits = observed.limits
    # A time is over when a reading from after it shows nothing better.
    both_at = min(observed.nodes_at, observed.vms_at)
    vm = present(observed, tracked, name)
    _note(observed, tracked, name, vm)
    if name in tracked.permanent_error:
        releases.add(name, tracked.permanent_error[name])
    elif observed.nodes_at >= begun + limits.verdict_s:
        releases.add(name, _too_late(observed, tracked, name, vm))
    elif vm is None:
        if both_at >= begun + limits.made_s:
            releases.add(name, f"no VM within {limits.made_s:.0f} s{_trouble(tracked, name)}")
    elif observed.left_over(vm):
        # It is deleted (`garbage_collect`), then a new one is made.
        pass
    elif vm.status == RUNNING:
        return _boots(observed, tracked, releases, vm)
    elif vm.status in COMING:
        if both_at >= begun + limits.made_s:
            releases.add(
                name,
                f"its VM in {vm.zone} is {vm.status} and does not run {limits.made_s:.0f} s "
                "after it was asked for",
            )
    elif vm.status not in LEAVING:
        # It has stopped. One that is leaving is gone soon, and then asked for again.
        how = "taken back (spot)" if vm.spot else "stopped"
        releases.add(name, f"its VM in {vm.zone} was {how} while it booted")
    return None


def _note(observed: ObservedState, tracked: TrackedState, name: str, vm: Vm | None) -> None:
    """Track how far a node's VM is."""
    if vm is None or vm.status != RUNNING:
        # The next one that runs begins its boot then.
        for facts in (tracked.running, tracked.said, tracked.inspecting):
            facts.pop(name, None)
    if vm is not None:
        tracked.lacking.pop(name, None)
    elif name in tracked.made and observed.vms_at > tracked.made[name][0]:
        tracked.lacking.setdefault(name, observed.vms_at)
    if vm is not None and vm.status in LEAVING:
        # When the next list lacks it, it is gone: that is no gap in the list.
        tracked.made.pop(name, None)
    elif vm is not None and vm.status in (*COMING, RUNNING) and not observed.left_over(vm):
        # A single list that lacks it later does not mean that it is gone.
        made_at = tracked.made.get(name, (0.0, None))[0]
        tracked.made[name] = (max(made_at, observed.vms_at), vm.pool)


def present(observed: ObservedState, tracked: TrackedState, name: str) -> Vm | None:
    """A node's VM, unless it has gone since it was listed."""
    vm = observed.vm.get(name)
    return None if vm is None or gone(observed, tracked, vm) else vm


def gone(observed: ObservedState, tracked: TrackedState, vm: Vm) -> bool:
    """Whether a VM has gone since it was listed."""
    if vm.id in tracked.gone.get(vm.name, ()):
        return True
    return tracked.no_room.get(vm.name, {}).get(vm.zone, 0) >= observed.vms_at


def _boots(observed: ObservedState, tracked: TrackedState, releases: Releases, vm: Vm) -> Vm | None:
    name = vm.name
    since = tracked.running.setdefault(name, observed.vms_at)
    late = observed.nodes_at - since - observed.limits.boot_s
    if late < 0:
        return None
    if name in tracked.said or late >= PROBE_S:
        releases.add(name, _stuck(observed, tracked, vm))
        return None
    return None if name in tracked.inspecting else vm


def _stuck(observed: ObservedState, tracked: TrackedState, vm: Vm) -> str:
    said = tracked.said.get(vm.name, "")
    waited = f"its VM in {vm.zone} has run for {observed.limits.boot_s:.0f} s"
    if said:
        return f"{waited} and slurmd has not registered; it says: {said}"
    return f"{waited} and has reported nothing of its boot; look at its console"


def _too_late(observed: ObservedState, tracked: TrackedState, name: str, vm: Vm | None) -> str:
    waited = f"{observed.limits.verdict_s:.0f} s"
    if vm is None:
        return f"no VM within {waited}{_trouble(tracked, name)}"
    if observed.left_over(vm):
        failure = tracked.undeleted.get(name)
        why = f": {sentence(failure)}" if failure else ""
        return (
            f"the previous VM is still {vm.status} in {vm.zone}, not deleted within {waited}{why}"
        )
    return f"its VM in {vm.zone} is {vm.status}, and slurmd has not registered within {waited}"


def _trouble(tracked: TrackedState, name: str) -> str:
    if name in tracked.backoff:
        return f": {sentence(tracked.backoff[name][1])}"
    if name in tracked.refused:
        return f": {sentence(tracked.refused[name][-1][1])}"
    return ""
