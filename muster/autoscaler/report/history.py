"""What the event log says of a period: each node's stages, and the jobs that asked for nodes.

A job whose nodes were in service already is not in the log. When a job ended is taken from its
nodes, which then have no job.
"""

import gzip
import json
import re
from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from muster.autoscaler.report.lifecycle import IN_SERVICE, POWERING_UP, Stage
from muster.catalog.hostlists import expand

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class HistoryError(Exception):
    """There is no history; the message is one sentence."""


@dataclass(slots=True)
class Span:
    """A node in one stage."""

    stage: Stage
    begin: float
    end: float
    where: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobSpan:
    """A job from its request for nodes on."""

    id: int
    nodes: tuple[str, ...]
    begin: float
    ready: float
    """When its nodes were in service; the end, if they never were."""
    end: float
    lost: bool
    """Its nodes were taken from it before it began: SLURM queues it again."""


@dataclass(frozen=True)
class History:
    """What happened from `begin` to `end`, in seconds since the epoch."""

    begin: float
    end: float
    nodes: dict[str, list[Span]] = field(default_factory=dict)
    """Without nodes that were off all the time."""
    jobs: list[JobSpan] = field(default_factory=list)
    """By their begin."""


def moment(text: str, now: float) -> float:
    """Return what `90m` or `2026-05-04T12:00` means, in seconds since the epoch.

    Raises:
        HistoryError: it means nothing.

    """
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return now - float(match[1]) * _UNITS[match[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise HistoryError(
            f"{text!r} is no time; write 90m, 2h, 3d, or a time such as 2026-05-04T12:00"
        ) from error


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the event log, oldest first, with those of rotated files.

    Raises:
        HistoryError: there is no log, or it can't be read.

    """
    rotated = re.compile(re.escape(path.name) + r"\.(\d+)(\.gz)?")
    try:
        older = [
            (int(match[1]), file)
            for file in path.parent.iterdir()
            if (match := rotated.fullmatch(file.name))
        ]
        files = [file for _, file in sorted(older, reverse=True)]
        files += [path] if path.exists() or not files else []
        for file in files:
            yield from _lines(file)
    except OSError as error:
        raise HistoryError(
            f"{error.filename or path}: {error.strerror or error}; the log is on the cluster's "
            "controller, where root and slurm may read it: use sudo"
        ) from error


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
                event["at"] = datetime.fromisoformat(event["time"]).timestamp()
            except (ValueError, KeyError, TypeError):
                # Cut by a disk that was full.
                continue
            yield event


def history(lines: Iterable[dict[str, Any]], begin: float, end: float) -> History:
    """Return what lines of the log say of the time from `begin` to `end`."""
    spans: dict[str, list[Span]] = {}
    asked: list[tuple[float, int, tuple[str, ...]]] = []
    for line in lines:
        if line["at"] > end:
            break
        match line.get("event"):
            case "stage":
                _stage(spans.setdefault(line["node"], []), line, end)
            case "removed":
                _close(spans.get(line["node"], []), line["at"])
            case "start" if line.get("fresh"):
                # The machine was booted: no daemon saw what happened before.
                for node_spans in spans.values():
                    _close(node_spans, line["at"])
            case "request":
                for job, names in line["jobs"].items():
                    insort(asked, (line["asked"], int(job), tuple(expand(names))))
    jobs = [_job(job, names, at, spans, end) for at, job, names in asked]
    cut = {name: _cut(node_spans, begin, end) for name, node_spans in spans.items()}
    return History(
        begin,
        end,
        {name: node_spans for name, node_spans in cut.items() if node_spans},
        [job for job in jobs if job.end > begin],
    )


def _stage(spans: list[Span], line: dict[str, Any], end: float) -> None:
    since = min(line.get("since", line["at"]), line["at"])
    if not spans and line.get("was"):
        # The stage before it is in a log that is gone.
        spans.append(Span(Stage(line["was"]), since - line.get("for_s", 0), since))
    _close(spans, since)
    parts = (
        line.get("machine_type"),
        line.get("gpus"),
        "spot" if line.get("spot") else "",
        line.get("zone"),
    )
    where = " ".join(part for part in parts if part)
    spans.append(Span(Stage(line["stage"]), since, end, where, line.get("reason", "")))


def _close(spans: list[Span], at: float) -> None:
    if spans:
        spans[-1].end = max(spans[-1].begin, min(spans[-1].end, at))


def _cut(spans: Iterable[Span], begin: float, end: float) -> list[Span]:
    """Return the parts of spans in a period, without those in which a node is off."""
    return [
        Span(span.stage, max(begin, span.begin), min(end, span.end), span.where, span.reason)
        for span in spans
        if span.stage is not Stage.OFF and span.end > begin and span.begin < end
    ]


def _job(
    job: int, names: tuple[str, ...], asked: float, spans: dict[str, list[Span]], end: float
) -> JobSpan:
    ready, over = asked, end
    begun = True
    for name in names:
        up, stop = _turn(spans.get(name, []), asked, end)
        over = min(over, stop)
        begun = begun and up is not None
        ready = max(ready, up or 0)
    begun = begun and ready <= over
    running_out = over < end
    return JobSpan(
        job, names, asked, ready if begun else over, over, lost=not begun and running_out
    )


def _turn(spans: Iterable[Span], asked: float, end: float) -> tuple[float | None, float]:
    """Return when a node was in service for a job, and when it had no job any more."""
    up, powering_up = None, False
    for span in spans:
        if span.end <= asked:
            continue
        if span.stage in POWERING_UP:
            powering_up = True
            continue
        if span.stage is Stage.IDLE and (up is not None or powering_up):
            # A job of a second has ended before its node is seen busy.
            return up or span.begin, span.begin
        if span.stage not in IN_SERVICE:
            return up, max(asked, span.begin)
        if span.stage is Stage.BUSY and up is None:
            up = span.begin
    return up, end
