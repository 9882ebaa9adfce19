"""What a part of a reconcile pass decides: a result that `reconcile` applies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import Action, CapacityPool, Insert
from muster.autoscaler.reconcile.records import NodeRecord, TrackedState
from muster.autoscaler.reconcile.transitions import Evidence


@dataclass(frozen=True, slots=True)
class Release:
    """A node is to be released."""

    evidence: Evidence
    reason: str
    """For users."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The decisions of one part."""

    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    """Node -> its record from now on."""
    breakers: Mapping[CapacityPool, Breaker] = field(default_factory=dict)
    """Pool -> its circuit breaker from now on."""
    release: Mapping[str, Release] = field(default_factory=dict)
    """Nodes to release, by name."""
    actions: Sequence[Action] = ()
    """All others."""

    def after(self, tracked: TrackedState) -> TrackedState:
        """Return the tracked state after these decisions."""
        inserts = {action.id: action for action in self.actions if isinstance(action, Insert)}
        if inserts or self.breakers:
            tracked = replace(
                tracked,
                inserts={**tracked.inserts, **inserts},
                breakers={**tracked.breakers, **self.breakers},
            )
        return tracked.with_nodes(self.records)
