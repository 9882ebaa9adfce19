"""What a reconcile pass knows of SLURM, the cloud and the spool; pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from muster.autoscaler.reconcile.model import (
    Event,
    Job,
    Node,
    NodeSet,
    Power,
    Quotas,
    Request,
    Unread,
    VmList,
    set_name,
)

STALE_S = 45.0
"""Age from which slurmctld's states are stale; they are asked for again 30 s after an answer."""

AGAIN_S = 60.0
"""SLURM does not ask for a node so soon after it was in service or was released: it powers the node
down first, for SuspendTimeout. A request within this time is of the start before: ResumeProgram was
called late. If the node was powering down already, the next states say which one it is of: they are
read at once."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds."""

    resume_s: float = 300
    """ResumeTimeout: how long SLURM waits for a node."""

    # Google gives no bound for how late its lists are. These are Muster's choices: a longer delay
    # costs calls, as a VM is read by its name or deleted by its id.

    missing_s: float = 20
    """How long lists must lack a VM before it is read by its name."""
    listed_s: float = 150
    """How long lists may have a VM of which Google has said that it is gone."""
    orphan_s: float = 120
    """How long SLURM must not know the node of a VM before the VM is deleted."""
    skew_s: float = 10
    """How much the time of a VM's creation may be off; one that is left over is older by minutes.
    """

    not_responding_s: float = 600
    """How long slurmd may fail to answer while its VM runs."""

    # The times below follow ResumeTimeout: who raises it has VMs that take longer.

    @property
    def verdict_s(self) -> float:
        """Within it each node has its verdict: it is in service or released."""
        return 0.9 * self.resume_s

    @property
    def made_s(self) -> float:
        """From the request to a VM that runs."""
        return 0.5 * self.resume_s

    @property
    def boot_s(self) -> float:
        """From a VM that runs to a node that has registered."""
        return 0.4 * self.resume_s


@dataclass(frozen=True)
class ObservedState:
    """SLURM, the cloud and the spool as they were read last; each may be some seconds old.

    Times as in `model`. People read `date` of them.
    """

    cluster: str
    now: float
    started: float = 0
    """Date of the time 0, in seconds since the epoch, by the system clock at this pass."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    nodes_at: float = 0
    """When slurmctld was asked; 0 = it hasn't answered yet."""
    vms: VmList = field(default_factory=VmList)
    vms_at: float = 0
    """When the VMs were listed; 0 = never yet."""
    requests: Sequence[Request] = ()
    sets: Mapping[str, NodeSet] = field(default_factory=dict)
    sets_at: float = 0
    """When the metadata were asked for; 0 = never yet."""
    quotas: Quotas = field(default_factory=Quotas)
    """Read before the VMs were listed."""
    unread: Mapping[str, Unread] = field(default_factory=dict)
    """What can't be read at present: `slurmctld`, `the cloud`, `the quotas`, `the metadata`, `the
    spool's requests`; what can't be written: `the spool`, or released: `nodes`."""
    events: Sequence[Event] = ()
    """Results of earlier actions, since the last pass."""
    timeouts: Timeouts = Timeouts()

    def date(self, time: float) -> float:
        """Return a time in seconds since the epoch, for people; 0 stays 0 = never."""
        return time + self.started if time else 0

    @property
    def zones(self) -> frozenset[str]:
        """The zones of all regions of the node sets, and of all VMs."""
        choices = (choice for node_set in self.sets.values() for choice in node_set.choices)
        return self.vms.zones.union(self.quotas.zones, (choice.zone for choice in choices))

    def set_of(self, name: str) -> NodeSet | None:
        """The node set of a node called CLUSTER-SET-NUMBER."""
        return self.sets.get(set_name(self.cluster, name))

    @cached_property
    def asked(self) -> dict[str, float]:
        """Node -> when SLURM asked for it last, as far as the spool knows."""
        times: dict[str, float] = {}
        for request in self.requests:
            for name in request.nodes:
                times[name] = max(request.asked, times.get(name, -math.inf))
        return times

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """Node -> the job that needs it and others: the largest one that its latest request names.

        Of jobs that are over by a later reading `jobs_over` makes requests without.
        """
        by_node: dict[str, Job] = {}
        for request in sorted(self.requests, key=lambda request: request.asked):
            if request.asked <= self.now - self.timeouts.resume_s:
                # It was closed, and its file could not be removed.
                continue
            for name in request.nodes:
                by_node.pop(name, None)
            for job in sorted(request.jobs, key=lambda job: len(job.nodes)):
                if len(job.nodes) > 1:
                    by_node |= dict.fromkeys(job.nodes, job)
        return by_node

    @property
    def stale(self) -> bool:
        """Whether slurmctld has not answered for so long that its states are out of date."""
        return not self.nodes_at or self.now > self.nodes_at + STALE_S

    def is_powering_up(self, name: str) -> bool:
        """Whether SLURM waits for a node.

        SLURM changes a node's state before it calls ResumeProgram: states that are newer than a
        request decide.
        """
        if self._newer(name):
            return True
        node = self.nodes.get(name)
        return node is not None and node.power is Power.POWERING_UP and not node.down

    def _newer(self, name: str) -> bool:
        """Whether a request for the node is newer than the states.

        Before slurmctld was read that is so if its ResumeTimeout is not over.
        """
        asked, node = self.asked.get(name), self.nodes.get(name)
        over_at = self.nodes_at or self.now - self.timeouts.resume_s
        if node is not None and node.power in (Power.UP, Power.POWERING_DOWN):
            over_at += AGAIN_S
        return asked is not None and over_at < asked

    def powering_up(self) -> Iterator[str]:
        """Yield the nodes that SLURM waits for."""
        return iter(self._powering_up)

    @cached_property
    def _powering_up(self) -> tuple[str, ...]:
        """Cached, for all parts of a pass use it; of thousands of nodes it has mostly none."""
        powering_up = Power.POWERING_UP
        names = [
            name
            for name, node in self.nodes.items()
            if node.power is powering_up and self.is_powering_up(name)
        ]
        for name in self.asked:
            node = self.nodes.get(name)
            if self._newer(name) and (node is None or node.power is not powering_up):
                names.append(name)
        return tuple(names)
