"""The status file: what the daemon knows, for `muster nodes` and `muster why`.

Everybody on the controller may read it, as everybody may ask SLURM: names, states, and why nodes
are not there, in the words of SLURM, Google and the VMs' own boots. What a call bears to prove who
asks is in none of them. It lies in /run: after a boot there is none until the daemon has written
one, and one that is old says that the daemon does not work.
"""

import json
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from muster.autoscaler.reconcile.model import CapacityPool, Unread
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.tracked import TrackedState
from muster.autoscaler.report.lifecycle import Stage, View

STATUS = Path("/run/muster-autoscaler/status.json")
LEAST_S, LONGEST_S = 1.0, 10.0
"""Seconds between two writings: at least, when much changes; at most, when nothing does."""
SHARE = 0.004
"""Part of a processor that the rows may take: while thousands change they are written less often,
down to once in `LONGEST_S`."""
STALE_S = 60.0
"""Age of a file whose daemon must have stopped."""

log = logging.getLogger(__name__)


class StatusError(Exception):
    """There is no status; the message is one sentence."""


@dataclass(slots=True)
class Row:
    """A node that is not simply off."""

    view: View
    since: float
    """When this stage began, as far as the daemon has seen."""
    jobs: tuple[int, ...] = ()
    """Jobs for which SLURM asked for it."""
    request: str = ""


@dataclass(frozen=True, slots=True)
class Shut:
    """A pool that had no room."""

    pool: CapacityPool
    code: str
    until: float
    """When it may be tried again."""
    on_trial: bool
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
    breakers: tuple[Shut, ...]
    room: dict[CapacityPool, int | None]
    """How many VMs the quotas allow besides those there are; None: unknown."""
    sets: dict[str, tuple[CapacityPool, ...]]
    """Node set -> the pools that its nodes may be made in, the best one first."""
    errors: dict[str, LastError]
    """Node set -> what the cloud refused last of its nodes."""
    unread: dict[str, Unread]
    """What can't be read at present: `slurmctld`, `the cloud`, `the quotas`, `the metadata`."""

    def stale(self, now: float) -> bool:
        """Whether nothing has been written for too long."""
        return now > self.written + STALE_S


@dataclass
class StatusFile:
    """Writes the file; a folder that is full does not stop the daemon."""

    path: Path = STATUS
    _written: float = 0
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
        """Write it if something is new, or it is old; `changed`: the rows are."""
        if changed:
            self._nodes = ""
        age_s = observed.now - self._written
        # A clock that was set back is no reason to keep silent.
        if 0 <= age_s < min(max(LEAST_S, self._spent_s / SHARE), LONGEST_S):
            return
        head = _head(observed, tracked, returned, errors)
        if self._nodes and head == self._head and 0 <= age_s < LONGEST_S:
            return
        if not self._nodes:
            began_s = time.thread_time()
            self._nodes = _nodes(rows)
            self._spent_s = time.thread_time() - began_s
        self._head, self._written = head, observed.now
        text = json.dumps({"written": observed.now, **head})
        self._write(f"{text[:-1]}, {self._nodes[1:]}\n")

    def _write(self, text: str) -> None:
        """Replace the file: who reads it sees the old one or the new one."""
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
        "slurm_read": observed.nodes_at,
        "cloud_read": observed.vms_at,
        "jobs": {job.id: job.nodes for request in observed.requests for job in request.jobs},
        "returned": {job: asdict(each) for job, each in returned.items()},
        "breakers": [
            {
                **asdict(pool),
                "code": breaker.code,
                "until": breaker.until,
                "on_trial": bool(breaker.trial),
                "size": breaker.size,
            }
            for pool, breaker in sorted(tracked.breakers.items())
        ],
        "room": [
            {**asdict(pool), "vms": observed.quotas.room(pool)}
            for pool in sorted(observed.quotas.uses)
        ],
        "sets": {
            name: list(dict.fromkeys(astuple(choice.pool) for choice in of.choices))
            for name, of in observed.sets.items()
        },
        "errors": {name: asdict(each) for name, each in errors.items()},
        "unread": {what: asdict(each) for what, each in observed.unread.items()},
    }


def _nodes(rows: Mapping[str, Row]) -> str:
    off = [name for name, row in rows.items() if _simply_off(row)]
    others = {name: _row(row) for name, row in rows.items() if not _simply_off(row)}
    return json.dumps({"off": off, "nodes": others})


def _simply_off(row: Row) -> bool:
    return row.view.stage is Stage.OFF and not row.view.reason


def _row(row: Row) -> dict[str, Any]:
    view = row.view
    found: dict[str, Any] = {
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
    return {key: each for key, each in found.items() if each}


def read(path: Path) -> Status:
    """Read the file.

    Raises:
        StatusError: there is none, or it can't be read.

    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return _status(found)
    except FileNotFoundError as error:
        raise StatusError(
            f"{path}: no such file; it is on the cluster's controller while "
            "muster-autoscaler.service runs: look at `systemctl status muster-autoscaler` there"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StatusError(
            f"{path} can't be read: {error!r}; `systemctl restart muster-autoscaler` writes it anew"
        ) from error


def _status(found: Mapping[str, Any]) -> Status:
    return Status(
        cluster=found["cluster"],
        written=float(found["written"]),
        slurm_read=found["slurm_read"],
        cloud_read=found["cloud_read"],
        nodes={name: _read_row(each) for name, each in found["nodes"].items()},
        off=frozenset(found["off"]),
        jobs={int(job): tuple(names) for job, names in found["jobs"].items()},
        returned={int(job): Returned(**each) for job, each in found["returned"].items()},
        breakers=tuple(
            Shut(_market(each), each["code"], each["until"], each["on_trial"], each["size"])
            for each in found["breakers"]
        ),
        room={_market(each): each["vms"] for each in found["room"]},
        sets={
            name: tuple(CapacityPool(*each) for each in of) for name, of in found["sets"].items()
        },
        errors={name: LastError(**each) for name, each in found["errors"].items()},
        unread={what: Unread(**each) for what, each in found["unread"].items()},
    )


def _market(found: Mapping[str, Any]) -> CapacityPool:
    return CapacityPool(found["zone"], found["machine_type"], found["spot"], found["gpus"])


def _read_row(found: Mapping[str, Any]) -> Row:
    facts = {name: found[name] for name in _VIEW if name in found}
    return Row(
        View(Stage(found["stage"]), **facts),
        found.get("since", 0),
        tuple(found.get("jobs", ())),
        found.get("request", ""),
    )


_VIEW = tuple(name for name in View.__dataclass_fields__ if name != "stage")
