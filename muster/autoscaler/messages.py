"""What the daemon's threads tell its loop: readings, failures, calls of SLURM's programs."""

import queue
from dataclasses import dataclass

from muster.autoscaler.reconcile.model import Event, Node, NodeSet, Quotas, Released, VmList


@dataclass(frozen=True, slots=True)
class NodesRead:
    """slurmctld's answer; `at` is the time of the question."""

    at: float
    nodes: dict[str, Node]
    not_released: tuple[Released, ...] = ()
    """Ends of releases that slurmctld did not answer in time, or refused: these states decide."""


@dataclass(frozen=True, slots=True)
class VmsRead:
    """The cloud's answer; `at` is the time of the question."""

    at: float
    vms: VmList
    quotas: Quotas
    """The daemon reads them just before the VMs."""


@dataclass(frozen=True, slots=True)
class SetsRead:
    """The metadata's answer; `at` is the time of the question."""

    at: float
    sets: dict[str, NodeSet]


@dataclass(frozen=True, slots=True)
class NotRead:
    """Something can't be read, or can be read again (`why` is empty)."""

    what: str
    at: float
    why: str
    verb: str = "read"
    """The spool can't be `written`, nodes can't be `released`."""


@dataclass(frozen=True, slots=True)
class Called:
    """One of SLURM's programs has written a file into the spool, or may have."""


Message = NodesRead | VmsRead | SetsRead | NotRead | Called | Event
Inbox = queue.SimpleQueue[Message]
