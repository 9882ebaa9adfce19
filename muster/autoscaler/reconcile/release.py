"""Nodes that are released: each once, with those that its job can't use without it."""

from dataclasses import dataclass, field

from muster.autoscaler.reconcile.model import Power, ReleaseNodes
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.tracked import TrackedState


@dataclass
class Releases:
    """The nodes that are released in this pass, by reason and power; `add` tracks them, too."""

    observed: ObservedState
    tracked: TrackedState
    reasons: dict[tuple[str, Power], list[str]] = field(default_factory=dict)

    def add(self, name: str, reason: str) -> None:
        """Release a node, and the other nodes that its job waits for.

        Not while slurmctld does not answer: the node may have come into service since.
        """
        if name in self.tracked.released or self.observed.stale:
            return
        powering_up = self.observed.is_powering_up(name)
        self._one(name, reason)
        job = self.observed.jobs.get(name)
        if job is None or not powering_up:
            return
        for other in job.nodes:
            if other not in self.tracked.released and self.observed.is_powering_up(other):
                # The same words for all jobs: each reason costs slurmctld a call.
                self._one(other, f"its job needs all of its nodes: {reason}")

    def _one(self, name: str, reason: str) -> None:
        self.tracked.released[name] = self.observed.now
        node = self.observed.nodes.get(name)
        power = Power.POWERING_UP if self.observed.is_powering_up(name) or not node else node.power
        self.reasons.setdefault((reason, power), []).append(name)

    def actions(self) -> list[ReleaseNodes]:
        """Return one action for each reason and power."""
        return [
            ReleaseNodes(tuple(names), reason, power)
            for (reason, power), names in self.reasons.items()
        ]
