"""What one reconcile pass knows for the next: a record of each node of which anything is known.

All of it may be lost: a daemon that starts without it gets to the same result a little later. What
must not be lost is in the spool, in slurmctld and in the cloud.

Records never change; a pass replaces them. What a result says counts from the time at which Google
or slurmctld said it (`model.Result.at`), what a reading says from when the daemon learns of it. A
deadline is over when a reading that was asked for after it shows nothing better; a list may be up
to `missing_s` older than its question.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import (
    CapacityPool,
    Choice,
    Failure,
    Insert,
    Job,
    Node,
    Vm,
    VmList,
)

T = TypeVar("T")


class Phase(StrEnum):
    """How far a node is. `transitions` says which evidence leads from one to the next."""

    SETTLED = "settled"
    """In service, or powered down; nothing is under way."""
    WAITING = "waiting"
    """SLURM waits for it, and no VM is being made for it."""
    INSERTING = "inserting"
    """Google makes its VM."""
    CREATED = "created"
    """Its VM is made, or may be, and does not run yet."""
    BOOTING = "booting"
    """Its VM runs, and slurmd has not registered."""
    STUCK = "stuck"
    """Its boot takes too long: the VM is asked for its report."""
    VERIFYING = "verifying"
    """In service, but a list lacks its VM or has it as stopped: the VM is read by its name."""
    RELEASED = "released"
    """Released; slurmctld does not show it yet."""


POWERING_UP = frozenset({Phase.WAITING, Phase.INSERTING, Phase.CREATED, Phase.BOOTING, Phase.STUCK})
"""SLURM waits for the node."""
VM_MADE = (Phase.CREATED, Phase.BOOTING, Phase.STUCK)
"""Its VM is made, or may be."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is known of a node's start, from SLURM's request on."""

    asked: float
    """When SLURM asked for it; without a request, not before this time."""
    accepted_from: float
    """slurmctld accepts the registration of a VM that was made from then on; of an older one only
    if it has booted since. Earlier than `asked` by how much clocks may differ, or by how much the
    request may have been late."""
    called: float = -math.inf
    """When SLURM called ResumeProgram last, by its request: mostly when it asked."""
    noticed_at: float = 0
    """Without a request, when it was first known to be powering up."""
    doubted_at: float = 0
    """When slurmctld was read after it had not been for long, and this start may have ended
    meanwhile: the node perhaps powers up for another request, which is lost. 0: it has not."""
    attempts: int = 0
    """How many inserts there were."""
    inserted_at: float = -math.inf
    """When the last one was sent."""
    insert: str = ""
    """Id of the last one."""
    refused: tuple[tuple[Choice, Failure], ...] = ()
    """Choices that had no room."""
    again: float = 0
    """The time before which it is not asked for again."""
    failure: Failure | None = None
    """Why it waits until `again`."""
    permanent_error: str = ""
    """Why no further try helps."""
    ran_by: Mapping[str, float] = field(default_factory=dict)
    """VM's id -> by when it ran (`Boot.ran_by`), of older VMs: by lists from before SLURM
    asked, and by those that have it running."""
    leaving: frozenset[str] = frozenset()
    """Ids of its VMs that were listed as leaving: they don't run any more, whatever a list says."""
    deletion_failure: Failure | None = None
    """Why its previous VM could not be deleted."""


@dataclass(frozen=True, slots=True)
class VmFacts:
    """The VM that was made for a start."""

    known_at: float
    """When its insert succeeded or had no answer, or when it was first listed or found by name."""
    pool: CapacityPool | None = None
    """None: another start, or an earlier daemon, may have made it: in any zone, or see `older`."""
    older: Mapping[str, str] = field(default_factory=dict)
    """If not empty, it can only be one of these, which lists had shortly before: its id -> zone."""
    id: str = ""
    """Empty until a list has it."""
    created: float = 0
    """As of its `Vm`; 0 until a list has it."""
    lacking_at: float = 0
    """When a list lacked it first after that; 0: none does."""
    running_at: float = 0
    """When a list had it running first; 0: none did, or Google repairs it since."""
    probed: bool = False
    """Whether it was asked for its report of its boot."""
    report: str | None = None
    """That report, perhaps empty."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The search by name for the VM of a node, which lists lack or have as stopped."""

    since: float
    """When a list did so first."""
    asked: frozenset[str] = frozenset()
    """Zones that are probed for it."""
    without: frozenset[str] = frozenset()
    """Zones that have answered that they don't have it, or have it stopped."""
    stopped: str = ""
    """Its status, where it has stopped."""
    again: float = 0
    """A probe has failed: a list that is asked for after this time lets it be read again."""


@dataclass(frozen=True, slots=True)
class Boot:
    """What lists have said of a VM's boot."""

    name: str
    """The VM's."""
    zone: str
    ran_by: float
    """When the daemon knew that it ran; at the latest `made_s` after the last list was asked for
    that had it as coming, or stopped."""
    ran: bool = False
    """Whether a list had it running."""
    lacking_at: float = 0
    """Since when lists lack it; 0: the newest one has it."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A VM's deletion that is under way, or has failed."""

    vm: Vm
    failed_at: float = 0
    """When it failed first; 0: it has not. Before, it may have waited for minutes to be sent."""
    again: float = math.inf
    """When it may be asked for again; infinite while it is under way."""
    asked_at: float = 0
    """When it was asked for."""
    lacking_at: float = 0
    """When a list lacked the VM first after it had failed; 0: the newest one has it."""
    urgent: bool = False
    withdrawn: bool = False
    """It is not wanted any more, and ends soon."""

    @property
    def under_way(self) -> bool:
        """Whether its end is still to come."""
        return self.again == math.inf


@dataclass(frozen=True, slots=True)
class Gone:
    """A VM whose deletion has succeeded."""

    at: float
    """When Google said so."""
    pool: CapacityPool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is tracked of one node; times as in `model`."""

    phase: Phase = Phase.SETTLED
    since: float = 0
    """When the outside world said what began this phase; of an insert, when SLURM asked for the
    node; of a release, when it was decided."""
    start: Start | None = None
    """While SLURM waits for it."""
    insert: str = ""
    """Id of the insert that is under way for it."""
    vm: VmFacts | None = None
    """Its VM, while SLURM waits for it."""
    lookup: Lookup | None = None
    """While its VM is read by name."""
    verified_at: float = 0
    """When its VM was found by name; a list that was asked for before says nothing against it."""
    preempted_at: float = 0
    """When it was first seen leaving because Google takes its VM back."""
    not_responding_at: float = 0
    """Since when it is down for not answering."""
    released_at: float = 0
    """When slurmctld took its release; 0: not yet."""
    unknown_at: float = 0
    """Since when it has a VM and SLURM does not know it."""
    deletions: Mapping[str, Deletion] = field(default_factory=dict)
    """By VM's id."""
    gone: Mapping[str, Gone] = field(default_factory=dict)
    """By VM's id. Lists may have them for some time."""
    no_room: Mapping[str, float] = field(default_factory=dict)
    """Zone -> when an insert there found no room. Older lists may have a VM: Google lists it while
    it looks for room."""

    def to(self, phase: Phase, at: float) -> "NodeRecord":
        """Return it in a phase that evidence of this time leads to."""
        return self if phase is self.phase else replace(self, phase=phase, since=at)

    def without_vm(self) -> "NodeRecord":
        """Return it without what is known of its VM, and of the search for that."""
        return replace(self, vm=None, lookup=None) if self.vm or self.lookup else self

    def settled(self, at: float) -> "NodeRecord":
        """Return what stays true when SLURM does not wait for the node any more."""
        return replace(
            self.to(Phase.SETTLED, at).without_vm(),
            start=None,
            verified_at=0.0,
            preempted_at=0.0,
            not_responding_at=0.0,
            released_at=0.0,
        )

    def with_service_of(self, before: "NodeRecord") -> "NodeRecord":
        """Return it with what slurmctld has said of the node's service before."""
        return replace(
            self, preempted_at=before.preempted_at, not_responding_at=before.not_responding_at
        )

    @property
    def in_doubt(self) -> bool:
        """Whether anything is tracked of its service."""
        return bool(self.lookup or self.verified_at or self.preempted_at or self.not_responding_at)

    @property
    def empty(self) -> bool:
        """Whether it says no more than that nothing is under way."""
        # Deletions first: of thousands of records most have one.
        return self.phase is Phase.SETTLED and not (
            self.deletions
            or self.gone
            or self.insert
            or self.no_room
            or self.unknown_at
            or self.in_doubt
        )


def started(record: NodeRecord) -> Start:
    """Return the start of a node that SLURM waits for.

    Raises:
        ValueError: it has none, though `starts` gives it one.

    """
    if record.start is None:
        raise ValueError(f"no start: {record}")
    return record.start


NOTHING = NodeRecord()
"""The record of a node of which nothing is tracked."""


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Which readings a pass works on."""

    nodes: Mapping[str, Node]
    nodes_at: float
    vms: VmList
    vms_at: float
    requests: object

    def same_as(self, others: "Readings") -> bool:
        """Whether these are the same objects, read at the same time."""
        same = self.nodes is others.nodes and self.vms is others.vms
        times = (self.nodes_at, self.vms_at) == (others.nodes_at, others.vms_at)
        return same and times and self.requests is others.requests


@dataclass(frozen=True, slots=True)
class TrackedState:
    """The records, and what is not of one node."""

    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    """By node's name; also of VMs whose node SLURM does not know. Without: `NOTHING`."""
    inserts: Mapping[str, Insert] = field(default_factory=dict)
    """Those under way, by id."""
    breakers: Mapping[CapacityPool, Breaker] = field(default_factory=dict)
    first_at: float = 0
    """When this daemon's first pass was."""
    began: float | None = None
    """When slurmctld had been read first: an earlier daemon may have begun what SLURM asked for
    until then."""
    back_at: float = 0
    """When slurmctld was asked first after it had not answered for longer than STALE_S: slurmds
    could not register, and what its states show may be new. 0: it has always answered."""
    zones: frozenset[str] = frozenset()
    """All zones that the node sets or VMs have had."""
    unlisted: frozenset[str] = frozenset()
    """Zones that Google has not reached since the first list."""
    boots: Mapping[str, Boot] = field(default_factory=dict)
    """By VM's id."""
    jobs_over: Mapping[str, Mapping[int, Job]] = field(default_factory=dict)
    """Request's id -> its jobs, by their id, that a later reading showed to have a node no more."""
    read: Readings | None = None
    """As of this pass."""
    fresh: bool = False
    """Whether any of that is new: all nodes are judged."""
    changed: tuple[str, ...] = ()
    """The nodes that results have come for: while nothing is new, only they are."""

    def node(self, name: str) -> NodeRecord:
        """Return a node's record."""
        return self.nodes.get(name, NOTHING)

    def with_nodes(self, records: Mapping[str, NodeRecord]) -> "TrackedState":
        """Return it with other records of some nodes."""
        if not records:
            return self
        nodes = {**self.nodes, **records}
        for name, record in records.items():
            if record.empty:
                del nodes[name]
        return replace(self, nodes=nodes)


def put(facts: Mapping[str, T], key: str, fact: T) -> dict[str, T]:
    """Return facts with another one."""
    return {**facts, key: fact}


def take(facts: Mapping[str, T], key: str) -> dict[str, T]:
    """Return facts without one."""
    return {other: fact for other, fact in facts.items() if other != key}
