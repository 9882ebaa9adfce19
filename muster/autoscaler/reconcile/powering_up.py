"""Nodes that SLURM waits for: what their VMs' states and the time say of them; pure.

Each stage has a time of its own, so that a reason says where it ended: asked for, VM runs, booted,
registered (with which SLURM takes it into service).
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
"""How long a VM's word about its boot is waited for."""


def check_powering_up(
    observed: ObservedState, tracked: TrackedState, releases: Releases
) -> list[Probe]:
    """Release the nodes on their way that won't come; return the looks that are due before."""
    mute = [
        vm
        for name in observed.powering_up()
        if name not in tracked.released and (vm := _check(observed, tracked, releases, name))
    ]
    # Those whose time is over first; whose turn doesn't come has its verdict without.
    mute.sort(key=lambda vm: tracked.running[vm.name])
    due = [vm for vm in mute if vm.name not in tracked.released][: spare(tracked)]
    tracked.inspecting |= {vm.name: observed.now for vm in due}
    return [Probe(vm.name, vm.zone) for vm in due]


def _check(
    observed: ObservedState, tracked: TrackedState, releases: Releases, name: str
) -> Vm | None:
    """Return its VM if that is to be asked what it says of its boot."""
    begun = tracked.powering_up[name]
    limits = observed.limits
    vm = present(observed, tracked, name)
    _note(observed, tracked, name, vm)
    if name in tracked.permanent_error:
        releases.add(name, tracked.permanent_error[name])
    elif observed.now >= begun + limits.verdict_s:
        releases.add(name, _too_late(observed, tracked, name, vm))
    elif vm is None:
        if observed.now >= begun + limits.made_s:
            releases.add(name, f"no VM within {limits.made_s:.0f} s{_trouble(tracked, name)}")
    elif observed.left_over(vm):
        # It is deleted (`clearing`), then a new one is made.
        pass
    elif vm.status == RUNNING:
        return _boots(observed, tracked, releases, vm)
    elif vm.status in COMING:
        if observed.now >= begun + limits.made_s:
            releases.add(
                name,
                f"its VM in {vm.zone} is {vm.status} and does not run {limits.made_s:.0f} s "
                "after it was asked for",
            )
    elif vm.status not in LEAVING:
        # It had run, or never will. What leaves is gone soon, and then asked for again.
        how = "taken back (spot)" if vm.spot else "stopped"
        releases.add(name, f"its VM in {vm.zone} was {how} while it booted")
    return None


def _note(observed: ObservedState, tracked: TrackedState, name: str, vm: Vm | None) -> None:
    """Remember how far a node's VM is."""
    if vm is None or vm.status != RUNNING:
        # The next one that runs begins its boot then.
        for of in (tracked.running, tracked.said, tracked.inspecting):
            of.pop(name, None)
    if vm is not None:
        tracked.lacking.pop(name, None)
    elif name in tracked.made and observed.vms_at > tracked.made[name][0]:
        tracked.lacking.setdefault(name, observed.vms_at)
    if vm is not None and vm.status in LEAVING:
        # Its absence from the next list is no gap in the list.
        tracked.made.pop(name, None)
    elif vm is not None and vm.status in (*COMING, RUNNING) and not observed.left_over(vm):
        # One list that lacks it will not mean that it is gone.
        made_at = tracked.made.get(name, (0.0, None))[0]
        tracked.made[name] = (max(made_at, observed.vms_at), vm.pool)


def present(observed: ObservedState, tracked: TrackedState, name: str) -> Vm | None:
    """A node's VM, unless the list is older than its end."""
    vm = observed.vm.get(name)
    return None if vm is None or gone(observed, tracked, vm) else vm


def gone(observed: ObservedState, tracked: TrackedState, vm: Vm) -> bool:
    """Whether the list is older than a VM's end."""
    return tracked.gone.get(vm.name, {}).get(vm.zone, 0) >= observed.vms_at


def _boots(observed: ObservedState, tracked: TrackedState, releases: Releases, vm: Vm) -> Vm | None:
    name = vm.name
    since = tracked.running.setdefault(name, observed.now)
    late = observed.now - since - observed.limits.boot_s
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
    return f"{waited} and nothing is heard of its system; look at its console"


def _too_late(observed: ObservedState, tracked: TrackedState, name: str, vm: Vm | None) -> str:
    waited = f"{observed.limits.verdict_s:.0f} s"
    if vm is None:
        return f"no VM within {waited}{_trouble(tracked, name)}"
    if observed.left_over(vm):
        failure = tracked.undeleted.get(name)
        why = f": {sentence(failure)}" if failure else ""
        return f"its VM of before in {vm.zone} is {vm.status} and not deleted within {waited}{why}"
    return f"its VM in {vm.zone} is {vm.status}, and slurmd has not registered within {waited}"


def _trouble(tracked: TrackedState, name: str) -> str:
    if name in tracked.backoff:
        return f": {sentence(tracked.backoff[name][1])}"
    if name in tracked.refused:
        return f": {sentence(tracked.refused[name][-1][1])}"
    return ""
