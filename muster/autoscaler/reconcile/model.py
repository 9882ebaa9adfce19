"""What a reconcile pass works on: nodes, VMs, requests, actions and their results; data only.

Times are those of `muster.autoscaler.clock.Clock.monotonic`: seconds since the controller's boot,
negative before it. A step of the system clock changes none of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

SEPARATOR = " : "
"""Between the reasons of a node: 24.11 appends the last one to earlier ones."""


# https://cloud.google.com/compute/docs/instances/instance-lifecycle; a VM of any other status is
# coming: PROVISIONING, STAGING, PENDING, REPAIRING, and what Google adds.
RUNNING = "RUNNING"
STOPPED = frozenset({"TERMINATED", "STOPPED", "SUSPENDED", "SUSPENDING"})
REPAIRING = "REPAIRING"
"""It ran, and boots again."""
LEAVING = frozenset({"STOPPING", "PENDING_STOP", "DEPROVISIONING"})
NOT_UP = STOPPED | LEAVING
"""Statuses of VMs that don't run, and will not by themselves."""


class Power(StrEnum):
    """What SLURM takes a node for: https://slurm.schedmd.com/power_save.html."""

    UP = "up"
    """It is in service, or would be if it were healthy."""
    POWERING_UP = "powering up"
    """SLURM has called ResumeProgram and waits until the node registers."""
    POWERING_DOWN = "powering down"
    """SLURM has called SuspendProgram; after SuspendTimeout the node is off."""
    OFF = "powered down"


OFF = (Power.POWERING_DOWN, Power.OFF)
"""It is powered down, or on the way."""


NodeState = tuple[Power, bool, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a node set of VMs, as slurmctld has it. Static nodes are not among them."""

    name: str
    power: Power
    down: bool = False
    """Its state is DOWN or FAIL: it takes no jobs until somebody acts."""
    drained: bool = False
    """DRAIN: kept for somebody to look at."""
    not_responding: bool = False
    """Its slurmd does not answer."""
    busy: bool = False
    """Jobs are on it, or have it allocated."""
    leaving: bool = False
    """It will be powered down when its jobs have ended (POWER_DOWN)."""
    invalid: bool = False
    """Its slurmd reports less than slurm.conf says, and SLURM drains it for that."""
    reason: str = ""
    by_hand: bool = False
    """Somebody else than SlurmUser set the reason."""

    @property
    def state(self) -> "NodeState":
        """What a release rests on: power, down, drained, whether somebody said so; and held.

        Held: it is down or drained, and has no job that a release would save.
        """
        held = (self.down or self.drained) and not self.busy
        return self.power, self.down, self.drained, self.by_hand, held


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM with this cluster's label and the role of a node."""

    name: str
    zone: str
    id: str
    """Google's number for it. A later VM of the same name has another one."""
    status: str
    """https://cloud.google.com/compute/docs/instances/instance-lifecycle"""
    created: float
    """When it was asked for."""
    machine_type: str = ""
    spot: bool = False
    gpus: str = ""
    """GPUs that are attached to it, such as `t4:2`, without those of its machine type."""

    @property
    def pool(self) -> "CapacityPool":
        """The capacity pool that it is made from."""
        return CapacityPool(self.zone, self.machine_type, self.spot, self.gpus)


class VmList(tuple[Vm, ...]):
    """VMs of one list; what follows from it is computed once, for all passes that use it."""

    unreachable: frozenset[str]
    """Zones that Google did not reach: their VMs are those of an earlier list, if there was one."""

    def __new__(cls, vms: Iterable[Vm] = (), unreachable: Iterable[str] = ()) -> "VmList":
        """Return a list of these VMs."""
        made = super().__new__(cls, vms)
        made.unreachable = frozenset(unreachable)
        return made

    @cached_property
    def by_name(self) -> dict[str, tuple[Vm, ...]]:
        """Name -> its VMs: more than one where they are in different zones."""
        listed: dict[str, tuple[Vm, ...]] = {}
        for vm in self:
            listed[vm.name] = (*listed.get(vm.name, ()), vm)
        return listed

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of all VMs."""
        return frozenset(vm.id for vm in self)

    @cached_property
    def zones(self) -> frozenset[str]:
        """The zones that have VMs."""
        return frozenset(vm.zone for vm in self)


@dataclass(frozen=True, slots=True)
class Job:
    """A job and those of its nodes that are to be made."""

    id: int
    nodes: tuple[str, ...]
    others: tuple[str, ...] = ()
    """Its other nodes: they are in service, or were asked for before. Up to 22.05 SLURM does not
    tell them."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one call of ResumeProgram asks for.

    It stays in the spool until SLURM waits for none of its nodes any more.
    """

    id: str
    """Name of its file: different for each call, the same after a restart of the daemon."""
    asked: float
    """When SLURM called the program; never in the future."""
    nodes: tuple[str, ...]
    jobs: tuple[Job, ...] = ()
    """Jobs that wait for nodes; a node may be in no job (`scontrol ... state=power_up`)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to make a node: a template in a zone."""

    template: str
    """projects/P/global/instanceTemplates/T"""
    zone: str
    machine_type: str
    spot: bool = False
    gpus: str = ""
    """GPUs that it attaches, such as `t4:2`, without those of the machine type."""

    @property
    def pool(self) -> "CapacityPool":
        """The capacity pool that it makes VMs from."""
        return CapacityPool(self.zone, self.machine_type, self.spot, self.gpus)


@dataclass(frozen=True, slots=True, order=True)
class CapacityPool:
    """Capacity that runs out as a whole: a machine type in a zone, spot apart from on demand.

    With GPUs attached it is another pool, which may have less room.
    """

    zone: str
    machine_type: str
    spot: bool
    gpus: str = ""

    @property
    def kind(self) -> str:
        """Such as `n1-standard-2`, or `n1-standard-2 t4:1` with GPUs attached."""
        return f"{self.machine_type} {self.gpus}".rstrip()

    def __str__(self) -> str:
        """Such as `n1-standard-2 (spot) in europe-west4-a`."""
        return f"{self.kind}{' (spot)' if self.spot else ''} in {self.zone}"


@dataclass(frozen=True, slots=True)
class NodeSet:
    """A node set: the ways to make its nodes, the best one first."""

    name: str
    choices: tuple[Choice, ...]
    compact: bool = False
    """The nodes of one job get their own placement policy."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What the project's quotas leave besides the VMs that exist; all pools share them."""

    left: Mapping[str, float] = field(default_factory=dict)
    """Such as `CPUS in europe-west4` -> how much."""
    uses: Mapping[CapacityPool, Mapping[str, float]] = field(default_factory=dict)
    """What a VM of a pool takes of each quota; a pool that is not here is unknown."""
    at: float = 0
    """When they were read."""
    zones: frozenset[str] = frozenset()
    """All zones of the regions that they are of."""

    def room(self, pool: CapacityPool) -> int | None:
        """How many VMs of a pool they allow, if it had all that is left; None: unknown."""
        counts = [int(max(0, self.left[quota]) // amount) for quota, amount in self._uses(pool)]
        return min(counts, default=None)

    def less(self, pool: CapacityPool, count: int) -> "Quotas":
        """Return what they leave when so many VMs of a pool have been made."""
        less = {quota: self.left[quota] - count * amount for quota, amount in self._uses(pool)}
        return replace(self, left={**self.left, **less}) if less else self

    def _uses(self, pool: CapacityPool) -> Iterable[tuple[str, float]]:
        return self.uses.get(pool, {}).items()


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that can't be read, or written."""

    since: float
    """When a try failed first."""
    why: str
    """The error of the last try."""
    verb: str = "read"
    """Or `written`, `released`."""


# --- actions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Insert:
    """Make VMs by one bulkInsert, at most 5,000; answered by `Inserted`.

    `id` follows from the request, the names and the choice. It becomes the requestId, so Google
    makes nothing twice when a restarted daemon asks again.
    """

    id: str
    choice: Choice
    names: tuple[str, ...]
    least: int
    """If Google has room for fewer than this, none is made (minCount)."""
    job: int = 0
    """The job that needs all of them; 0 = each counts for itself."""
    placement: bool = False
    """With their own placement policy, which is made first and named after the job."""
    sent_at: float = 0
    """When that was decided."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a VM, and no other one of its name; answered by `Deleted`."""

    vm: Vm
    why: str
    urgent: bool = False
    """Its node powers up and waits for it: it is deleted before others, also if it was asked for
    before without this."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Don't delete a VM after all, if its deletion was not sent yet; that ends with `Deleted`."""

    vm: Vm


@dataclass(frozen=True, slots=True)
class ReleaseNodes:
    """Release nodes: SLURM queues their jobs again, with a reason that users read.

    Answered by `Released`.
    Once they are powered down SLURM may use the nodes again after SuspendTimeout.
    """

    names: tuple[str, ...]
    reason: str
    """Without `muster: `, with which each of Muster's reasons begins."""
    state: NodeState
    """`Node.state` by which it was decided: nodes that have another one when they are read directly
    before are left out."""
    vm_gone: bool = False
    """They have no VM any more, or one that has stopped: by its name, whatever SLURM says."""
    unused: bool = False
    """No job had them: nodes that one has when they are read directly before are left out."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Get one VM by its name: unlike a list that is consistent; answered by `ProbeResult`."""

    name: str
    zone: str
    report: bool = False
    """Read what it says of its boot, too."""


@dataclass(frozen=True, slots=True)
class Close:
    """Delete the file of a request: SLURM waits for none of its nodes any more."""

    request: str


Action = Insert | Delete | Withdraw | ReleaseNodes | Probe | Close


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was refused.

    `code` is Google's or `compute`'s: `ZONE_RESOURCE_POOL_EXHAUSTED`, `rateLimitExceeded`,
    `unreachable`.
    """

    code: str
    message: str
    status: int = 0
    """HTTP status of the call or of the operation; 0 = there was no answer, or it is not known."""


@dataclass(frozen=True, slots=True)
class Result:
    """What is common to the results of all actions."""

    at: float = field(default=0, kw_only=True, compare=False)
    """When Google or slurmctld said so; a reading that was asked for after this time is newer."""


@dataclass(frozen=True, slots=True)
class Inserted(Result):
    """An Insert has ended. A name without a failure has its VM (or had it already)."""

    id: str
    failed: dict[str, Failure] = field(default_factory=dict)
    """Name -> why it has no VM."""
    whole: Failure | None = None
    """Why none was made."""


@dataclass(frozen=True, slots=True)
class Deleted(Result):
    """A Delete has ended. Without a failure the VM is gone (or was gone before)."""

    vm: Vm
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult(Result):
    """A Probe's answer."""

    name: str
    zone: str
    exists: bool
    """Whether there is a VM of this cluster that has the name."""
    report: str = ""
    """What the VM said last of its own boot (guest attribute muster/report): state and step."""
    failure: Failure | None = None
    """Why it is not known whether it exists."""
    id: str = ""
    status: str = ""
    """As of a `Vm`; empty, as the id: it was not read."""
    of_report: bool = False
    """The probe was one for the report."""


@dataclass(frozen=True, slots=True)
class Released(Result):
    """A ReleaseNodes has ended."""

    action: ReleaseNodes
    names: tuple[str, ...] = ()
    """Those of its nodes that slurmctld has released; the others had another state."""
    failure: str = ""
    """Why slurmctld has released none."""

    @property
    def not_released(self) -> tuple[str, ...]:
        """The nodes that are not released."""
        released = frozenset(self.names)
        return tuple(name for name in self.action.names if name not in released)


Event = Inserted | Deleted | ProbeResult | Released


def set_name(cluster: str, node: str) -> str:
    """Return the name of the set of a node called CLUSTER-SET-NUMBER; there may be no such set."""
    return node.removeprefix(f"{cluster}-").rpartition("-")[0]
