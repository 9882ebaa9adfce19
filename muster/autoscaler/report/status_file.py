"""The status file: what the daemon knows, for `muster nodes` and `muster why`.

Everybody on the controller may read it, as everybody may ask SLURM: names, states, and why nodes
are not in service, in the words of SLURM, Google and the VMs' own boots. None of them has a token
or another secret. It is in /run: after a boot there is none until the daemon has written one. An
old one means that the daemon does not work.
"""

import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from muster.autoscaler.reconcile.model import CapacityPool, Unread
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.report.lifecycle import Stage, View

STATUS = Path("/run/muster-autoscaler/status.json")
LEAST_S, LONGEST_S = 1.0, 10.0
"""Seconds between two writes: at least, when much changes; at most, when nothing does."""
SHARE = 0.004
"""Part of a processor that the rows may take: while thousands change they are written less often,
down to once in `LONGEST_S`."""
STALE_S = 60.0
"""Age of a file whose daemon must have stopped."""

log = logging.getLogger(__name__)


class StatusError(Exception):
    """There is no status; the message is one sentence."""


@dataclass(frozen=True)
class Row:
    """A node as it is shown; the observer replaces it when anything changes."""

    view: View
    since: float
    """When this stage began, as far as the daemon has seen, in seconds since the epoch."""
    jobs: tuple[int, ...] = ()
    """Jobs for which SLURM asked for it."""
    request: str = ""

    @cached_property
    def text(self) -> str:
        """As the file has it. Of thousands of nodes few change between two writes."""
        return json.dumps(_row(self))


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    """The circuit breaker of a pool that had no room."""

    pool: CapacityPool
    code: str
    until: float
    """When it may be tried again, in seconds since the epoch."""
    half_open: bool
    """An insert is trying it."""
    size: int = 1
    """How many VMs at once it had no room for."""

    def __str__(self) -> str:
        """Such as `50 VMs at once of n1-standard-2 in europe-west4-a`."""
        return f"{self.size} VMs at once of {self.pool}" if self.size > 1 else str(self.pool)


@dataclass(frozen=True, slots=True)
class LastError:
    """What the cloud refused last."""

    at: float
    what: str
    """Such as `insert lab-debug-[0-3]`."""
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A job whose nodes were released."""

    at: float
    reason: str


@dataclass(frozen=True)
class Status:
    """What the file says. Times are seconds since the epoch, 0 = not yet."""

    cluster: str
    written: float
    slurm_read: float
    cloud_read: float
    nodes: dict[str, Row]
    off: frozenset[str]
    """Nodes that are off and have no reason."""
    jobs: dict[int, tuple[str, ...]]
    """Jobs of open requests -> those of their nodes that are to be made."""
    returned: dict[int, Returned]
    breakers: tuple[BreakerStatus, ...]
    room: dict[CapacityPool, int | None]
    """How many VMs the quotas allow besides those that exist; None: unknown."""
    sets: dict[str, tuple[CapacityPool, ...]]
    """Node set -> the pools that its nodes may be made in, the best one first."""
    errors: dict[str, LastError]
    """Node set -> what the cloud refused last of its nodes."""
    unread: dict[str, Unread]
    """What can't be read at present: `slurmctld`, `the cloud`, `the quotas`, `the metadata`; what
    can't be written: `the spool`."""

    def stale(self, now: float) -> bool:
        """Whether nothing has been written for too long."""
        return now > self.written + STALE_S


@dataclass
class StatusFile:
    """Writes the file; a full file system does not stop the daemon."""

    path: Path = STATUS
    _written: float = -math.inf
    """When it was written, as in `model`."""
    _nodes: str = ""
    """The part about nodes as it was written, empty when it has changed since."""
    _head: dict[str, Any] = field(default_factory=dict)
    _spent_s: float = 0
    """CPU seconds that the rows took last."""
    _works: bool = True

    def update(
        self,
        observed: ObservedState,
        tracked: TrackedState,
        rows: Mapping[str, Row],
        *,
        changed: bool,
        returned: Mapping[int, Returned],
        errors: Mapping[str, LastError],
    ) -> None:
        """Write it if something has changed, or it is old; `changed`: the rows have."""
        if changed:
            self._nodes = ""
        age_s = observed.now - self._written
        if age_s < min(max(LEAST_S, self._spent_s / SHARE), LONGEST_S):
            return
        head = _head(observed, tracked, returned, errors)
        if self._nodes and head == self._head and age_s < LONGEST_S:
            return
        if not self._nodes:
            began_s = time.thread_time()
            self._nodes = _nodes(rows)
            self._spent_s = time.thread_time() - began_s
        self._head, self._written = head, observed.now
        text = json.dumps({"written": observed.date(observed.now), **head})
        self._write(f"{text[:-1]}, {self._nodes[1:]}\n")

    def _write(self, text: str) -> None:
        """Replace the file: a reader sees the whole old one or the whole new one."""
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.path.parent, prefix=".status", delete=False
            ) as file:
                try:
                    file.write(text)
                    os.fchmod(file.fileno(), 0o644)
                    file.flush()
                    Path(file.name).replace(self.path)
                except OSError:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            if self._works:
                log.error(
                    "%s can't be written: %s; `muster nodes` is out of date", self.path, error
                )
            self._works = False
        else:
            self._works = True


def _head(
    observed: ObservedState,
    tracked: TrackedState,
    returned: Mapping[int, Returned],
    errors: Mapping[str, LastError],
) -> dict[str, Any]:
    return {
        "cluster": observed.cluster,
        "slurm_read": observed.date(observed.nodes_at),
        "cloud_read": observed.date(observed.vms_at),
        "jobs": {job.id: job.nodes for request in observed.requests for job in request.jobs},
        "returned": {job: asdict(release) for job, release in returned.items()},
        "breakers": [
            {
                **asdict(pool),
                "code": breaker.code,
                "until": observed.date(breaker.until),
                "half_open": bool(breaker.trial),
                "size": breaker.size,
            }
            for pool, breaker in sorted(tracked.breakers.items())
        ],
        "room": [
            {**asdict(pool), "vms": observed.quotas.room(pool)}
            for pool in sorted(observed.quotas.uses)
        ],
        "sets": {
            name: list(dict.fromkeys(astuple(choice.pool) for choice in node_set.choices))
            for name, node_set in observed.sets.items()
        },
        "errors": {name: asdict(error) for name, error in errors.items()},
        "unread": {
            what: asdict(replace(unread, since=observed.date(unread.since)))
            for what, unread in observed.unread.items()
        },
    }


def _nodes(rows: Mapping[str, Row]) -> str:
    off: list[str] = []
    others: list[str] = []
    for name, row in rows.items():
        if _simply_off(row):
            off.append(name)
        else:
            others.append(f"{json.dumps(name)}: {row.text}")
    return f'{{"off": {json.dumps(off)}, "nodes": {{{", ".join(others)}}}}}'


def _simply_off(row: Row) -> bool:
    return row.view.stage is Stage.OFF and not row.view.reason


def _row(row: Row) -> dict[str, Any]:
    view = row.view
    facts: dict[str, Any] = {
        "stage": view.stage,
        "state": view.state,
        "since": row.since,
        "zone": view.zone,
        "machine_type": view.machine_type,
        "spot": view.spot,
        "gpus": view.gpus,
        "reason": view.reason,
        "retry": view.retry,
        "jobs": row.jobs,
        "request": row.request,
    }
    return {key: fact for key, fact in facts.items() if fact}


def read(path: Path) -> Status:
    """Read the file.

    Raises:
        StatusError: there is none, or it can't be read.

    """
    try:
        return _status(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise StatusError(
            f"{path}: no such file; it is on the cluster's controller while "
            "muster-autoscaler.service runs: look at `systemctl status muster-autoscaler` there; "
            "on another machine, where the definition is, name it with --cluster"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StatusError(
            f"{path} can't be read: {error!r}; `systemctl restart muster-autoscaler` rewrites it"
        ) from error


def _status(document: Mapping[str, Any]) -> Status:
    return Status(
        cluster=document["cluster"],
        written=float(document["written"]),
        slurm_read=document["slurm_read"],
        cloud_read=document["cloud_read"],
        nodes={name: _read_row(row) for name, row in document["nodes"].items()},
        off=frozenset(document["off"]),
        jobs={int(job): tuple(names) for job, names in document["jobs"].items()},
        returned={int(job): Returned(**release) for job, release in document["returned"].items()},
        breakers=tuple(_read_breaker(breaker) for breaker in document["breakers"]),
        room={_read_pool(room): room["vms"] for room in document["room"]},
        sets={
            name: tuple(CapacityPool(*pool) for pool in pools)
            for name, pools in document["sets"].items()
        },
        errors={name: LastError(**error) for name, error in document["errors"].items()},
        unread={what: Unread(**unread) for what, unread in document["unread"].items()},
    )


def _read_breaker(facts: Mapping[str, Any]) -> BreakerStatus:
    return BreakerStatus(
        _read_pool(facts), facts["code"], facts["until"], facts["half_open"], facts["size"]
    )


def _read_pool(facts: Mapping[str, Any]) -> CapacityPool:
    return CapacityPool(facts["zone"], facts["machine_type"], facts["spot"], facts["gpus"])


def _read_row(facts: Mapping[str, Any]) -> Row:
    view = {name: facts[name] for name in _VIEW if name in facts}
    return Row(
        View(Stage(facts["stage"]), **view),
        facts.get("since", 0),
        tuple(facts.get("jobs", ())),
        facts.get("request", ""),
    )


_VIEW = tuple(name for name in View.__dataclass_fields__ if name != "stage")
