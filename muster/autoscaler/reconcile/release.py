"""Nodes that are given back: each once, with those that its job can't use without it; pure."""

from dataclasses import dataclass, field

from muster.autoscaler.reconcile.model import GiveBack
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.tracked import Memory


@dataclass
class Returns:
    """The nodes that are given back in this round, by reason."""

    world: World
    memory: Memory
    reasons: dict[str, list[str]] = field(default_factory=dict)

    def give(self, name: str, reason: str) -> None:
        """Give a node back, and the other nodes that its job waits for.

        Not while slurmctld is silent: the node may have come into service since.
        """
        if name in self.memory.given or self.world.stale:
            return
        rises = self.world.rises(name)
        self._one(name, reason)
        job = self.world.jobs.get(name)
        if job is None or not rises:
            return
        for other in job.nodes:
            if other not in self.memory.given and self.world.rises(other):
                # The same words for all jobs: each reason costs slurmctld a call.
                self._one(other, f"its job needs all of its nodes: {reason}")

    def _one(self, name: str, reason: str) -> None:
        self.memory.given[name] = self.world.now
        self.reasons.setdefault(reason, []).append(name)

    def actions(self) -> list[GiveBack]:
        """Return them as few actions."""
        return [GiveBack(tuple(names), reason) for reason, names in self.reasons.items()]
