"""What one reconcile pass remembers for the next.

All of it may be lost: a daemon that starts without it gets to the same result a little later. What
must not be lost is in the spool, in slurmctld and in the cloud.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import CapacityPool, Choice, Failure, Insert

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Miss:
    """A VM that should be there and isn't in the lists."""

    since: float
    """The time of the first list without it."""
    asked: frozenset[str] = frozenset()
    """Zones that are probed for it."""
    without: frozenset[str] = frozenset()
    """Zones that have answered that they don't have it."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A VM's deletion that is under way, or has failed."""

    since: float
    """When it was asked for first."""
    again: float = math.inf
    """When it may be asked for again; infinite while it is under way."""
    urgent: bool = False


def put(facts: dict[str, Mapping[str, T]], name: str, key: str, fact: T) -> None:
    """Set a node's fact for a key. Its mapping is replaced: copies of the state share the old."""
    facts[name] = {**facts.get(name, {}), key: fact}


def take(facts: dict[str, Mapping[str, T]], name: str, key: str) -> None:
    """Drop a node's fact for a key."""
    left = {other: fact for other, fact in facts.get(name, {}).items() if other != key}
    if left:
        facts[name] = left
    else:
        facts.pop(name, None)


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
    """When an insert succeeded, or when the last list that has the VM was asked for; and the pool,
    where it is known."""
    lacking: dict[str, float] = field(default_factory=dict)
    """When the first list that lacks a VM in `made` was asked for; all lists since lack it too."""
    gone: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """VM's id -> when its deletion succeeded. Lists may have it for some time."""
    no_room: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Zone -> when an insert there found no room. Older lists may have a VM: Google lists it while
    it looks for room."""
    deleting: dict[str, Mapping[str, Deletion]] = field(default_factory=dict)
    """VM's id -> its deletion."""
    undeleted: dict[str, Failure] = field(default_factory=dict)
    """Why its previous VM could not be deleted; while it powers up."""
    refused: dict[str, tuple[tuple[Choice, Failure], ...]] = field(default_factory=dict)
    """Choices that had no room."""
    backoff: dict[str, tuple[float, Failure]] = field(default_factory=dict)
    """The time before which it is not asked for again, and why."""
    permanent_error: dict[str, str] = field(default_factory=dict)
    """Why no further try helps."""
    released: dict[str, float] = field(default_factory=dict)
    """When it was released."""
    powering_up: dict[str, float] = field(default_factory=dict)
    """When it was first seen powering up."""
    running: dict[str, float] = field(default_factory=dict)
    """When its VM was first seen running."""
    said: dict[str, str] = field(default_factory=dict)
    """Its VM's last report of its boot, perhaps empty; from the answer to a probe on."""
    inspecting: dict[str, float] = field(default_factory=dict)
    """When its VM was probed for its report."""
    missing: dict[str, Miss] = field(default_factory=dict)
    preempted: dict[str, float] = field(default_factory=dict)
    """When it was first seen leaving because Google takes its VM back."""
    not_responding: dict[str, float] = field(default_factory=dict)
    """Since when it is down for not answering."""
    breakers: dict[CapacityPool, Breaker] = field(default_factory=dict)
    """By pool."""

    def copy(self) -> "TrackedState":
        """Return a copy; changes to it leave this one as it is."""
        return TrackedState(**{part.name: dict(getattr(self, part.name)) for part in fields(self)})
