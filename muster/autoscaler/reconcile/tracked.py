"""What the plan remembers from one round to the next.

All of it may be lost: a daemon that begins with none comes to the same end, a little later. What
must not be lost stands in the spool, in slurmctld and in the cloud.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import CapacityPool, Choice, Failure, Insert


@dataclass(frozen=True, slots=True)
class Miss:
    """A VM that should be there and isn't in the lists."""

    since: float
    """The time of the first list without it."""
    asked: frozenset[str] = frozenset()
    """Zones that are asked for it by name."""
    without: frozenset[str] = frozenset()
    """Zones that have answered that they don't have it."""


def put(of: dict[str, Mapping[str, float]], name: str, zone: str, when: float) -> None:
    """Remember a time for a zone; what a copy of the tracked shares is not changed."""
    of[name] = {**of.get(name, {}), zone: when}


def take(of: dict[str, Mapping[str, float]], name: str, zone: str) -> None:
    """Forget what is remembered for a zone."""
    left = {each: when for each, when in of.get(name, {}).items() if each != zone}
    if left:
        of[name] = left
    else:
        of.pop(name, None)


@dataclass(slots=True)
class TrackedState:
    """By node's name unless said otherwise; times as in `model`."""

    asks: dict[str, Insert] = field(default_factory=dict)
    """Inserts under way, by id."""
    asking: dict[str, str] = field(default_factory=dict)
    """The insert under way for a node."""
    attempts: dict[str, int] = field(default_factory=dict)
    """How many inserts there were for a node since it was asked for."""
    made: dict[str, tuple[float, CapacityPool | None]] = field(default_factory=dict)
    """When an insert ended well, or the list that had its VM last was asked for; and the pool,
    where it is known."""
    lacking: dict[str, float] = field(default_factory=dict)
    """When the first list was asked for that lacks a VM in `made`, all since included."""
    gone: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Zone -> when a deletion there ended well, or there was no room. Older lists may still have
    the VM."""
    deleting: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Zone -> until when no other deletion there is asked for."""
    undeleted: dict[str, Failure] = field(default_factory=dict)
    """Why its VM of before could not be deleted; while it rises."""
    refused: dict[str, tuple[tuple[Choice, Failure], ...]] = field(default_factory=dict)
    """Choices that had no room."""
    backoff: dict[str, tuple[float, Failure]] = field(default_factory=dict)
    """Not to be asked for before a time, and why."""
    permanent_error: dict[str, str] = field(default_factory=dict)
    """Why no further try helps."""
    released: dict[str, float] = field(default_factory=dict)
    """When it was released."""
    powering_up: dict[str, float] = field(default_factory=dict)
    """When it was first seen powering up."""
    running: dict[str, float] = field(default_factory=dict)
    """When its VM was first seen running."""
    said: dict[str, str] = field(default_factory=dict)
    """What its VM said last of its boot; there once it was asked."""
    inspecting: dict[str, float] = field(default_factory=dict)
    """When its VM was asked what it says of its boot."""
    missing: dict[str, Miss] = field(default_factory=dict)
    preempted: dict[str, float] = field(default_factory=dict)
    """When it was first seen leaving because Google takes its VM."""
    not_responding: dict[str, float] = field(default_factory=dict)
    """Since when it is down for not answering."""
    breakers: dict[CapacityPool, Breaker] = field(default_factory=dict)
    """By pool."""

    def set_back(self, now: float) -> "TrackedState":
        """Return what holds whatever the clock says: mostly that VMs are made, or being made."""
        return TrackedState(
            asks=dict(self.asks),
            asking=dict(self.asking),
            attempts=dict(self.attempts),
            made={name: (now, pool) for name, (_, pool) in self.made.items()},
            refused=dict(self.refused),
            permanent_error=dict(self.permanent_error),
            # Begun when SLURM asked, which the spool still has by the old clock.
            powering_up=dict(self.powering_up),
        )

    def copy(self) -> "TrackedState":
        """Return one that may be changed without changing this."""
        return TrackedState(**{each.name: dict(getattr(self, each.name)) for each in fields(self)})
