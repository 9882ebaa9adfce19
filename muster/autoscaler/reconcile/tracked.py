"""What the plan remembers from one round to the next.

All of it may be lost: a daemon that begins with none comes to the same end, a little later. What
must not be lost stands in the spool, in slurmctld and in the cloud.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import Choice, Failure, Insert, Market


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
    """Remember a time for a zone; what a copy of the memory shares is not changed."""
    of[name] = {**of.get(name, {}), zone: when}


def take(of: dict[str, Mapping[str, float]], name: str, zone: str) -> None:
    """Forget what is remembered for a zone."""
    left = {each: when for each, when in of.get(name, {}).items() if each != zone}
    if left:
        of[name] = left
    else:
        of.pop(name, None)


@dataclass(slots=True)
class Memory:
    """By node's name unless said otherwise; times as in `model`."""

    asks: dict[str, Insert] = field(default_factory=dict)
    """Inserts under way, by id."""
    asking: dict[str, str] = field(default_factory=dict)
    """The insert under way for a node."""
    attempts: dict[str, int] = field(default_factory=dict)
    """How many inserts there were for a node since it was asked for."""
    made: dict[str, tuple[float, Market | None]] = field(default_factory=dict)
    """When an insert ended well, or the list that had its VM last was asked for; and the market,
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
    pause: dict[str, tuple[float, Failure]] = field(default_factory=dict)
    """Not to be asked for before a time, and why."""
    hopeless: dict[str, str] = field(default_factory=dict)
    """Why no further try helps."""
    given: dict[str, float] = field(default_factory=dict)
    """When it was given back."""
    rising: dict[str, float] = field(default_factory=dict)
    """When it was first seen powering up."""
    running: dict[str, float] = field(default_factory=dict)
    """When its VM was first seen running."""
    said: dict[str, str] = field(default_factory=dict)
    """What its VM said last of its boot; there once it was asked."""
    inspecting: dict[str, float] = field(default_factory=dict)
    """When its VM was asked what it says of its boot."""
    missing: dict[str, Miss] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    """When it was first seen leaving because Google takes its VM."""
    silent: dict[str, float] = field(default_factory=dict)
    """Since when it is down for not answering."""
    breakers: dict[Market, Breaker] = field(default_factory=dict)
    """By market."""

    def set_back(self, now: float) -> "Memory":
        """Return what holds whatever the clock says: mostly that VMs are made, or being made."""
        return Memory(
            asks=dict(self.asks),
            asking=dict(self.asking),
            attempts=dict(self.attempts),
            made={name: (now, market) for name, (_, market) in self.made.items()},
            refused=dict(self.refused),
            hopeless=dict(self.hopeless),
            # Begun when SLURM asked, which the spool still has by the old clock.
            rising=dict(self.rising),
        )

    def copy(self) -> "Memory":
        """Return one that may be changed without changing this."""
        return Memory(**{each.name: dict(getattr(self, each.name)) for each in fields(self)})
