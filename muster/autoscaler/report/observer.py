"""Publishes what each reconcile pass saw and did: status file, event log, metrics, journal.

The daemon calls it after each pass. When nothing was read or done since, it only compares and
returns. It remembers since when each node is in its stage.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from muster.autoscaler.reconcile.model import (
    Action,
    Insert,
    Inserted,
    Released,
    ReleaseNodes,
    Request,
    set_name,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Phase, TrackedState
from muster.autoscaler.report import events
from muster.autoscaler.report.cold_start import ColdStarts
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.events import Line
from muster.autoscaler.report.lifecycle import POWERING_UP, Stage, View, stage, stages, touched
from muster.autoscaler.report.metrics import Metrics
from muster.autoscaler.report.repeats import Repeats
from muster.autoscaler.report.status_file import (
    LastError,
    Returned,
    Row,
    StatusError,
    StatusFile,
    read,
)
from muster.catalog.hostlists import fold
from muster.catalog.printable import one_line

log = logging.getLogger(__name__)

RETURNED = 1000
"""Jobs whose nodes were released that are remembered."""


class Observer:
    """What a `Daemon` calls after each reconcile pass."""

    def __init__(self, status: StatusFile, events: EventLog, metrics: Metrics) -> None:
        self.status = status
        self.events = events
        self.metrics = metrics
        self._rows: dict[str, Row] = {}
        self._counts: Counter[tuple[str, Stage]] = Counter()
        self._cold = ColdStarts()
        self._released: dict[str, str] = {}
        """Node -> why it was released, until slurmctld shows the release."""
        self._waited: dict[ReleaseNodes, dict[str, tuple[int, ...]]] = {}
        """Releases under way -> the jobs that each of their nodes had."""
        self._asks: dict[str, tuple[str, ...]] = {}
        """Inserts under way, by id, and their nodes."""
        self._returned: dict[int, Returned] = {}
        self._errors: dict[str, LastError] = {}
        self._requests: dict[str, Request] = {}
        self._requested_by: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Node -> its request, and the jobs that wait for it."""
        self._seen: tuple[ObservedState, TrackedState] | None = None
        self._before = self._rows_of_last_daemon()
        # Fresh: no daemon has written a status since the machine was booted.
        self._lines = [Line({"event": "start", "fresh": not self._before or None})]
        self._repeats = Repeats()

    def __call__(
        self, observed: ObservedState, tracked: TrackedState, actions: Sequence[Action]
    ) -> None:
        """Take a pass's outcome."""
        self._take_requests(observed)
        self._take_actions(actions)
        self._take_events(observed)
        changed = bool(observed.nodes) and self._take_stages(observed, tracked)
        lines = self._repeats.bounded(observed.now, self._lines)
        self.events.write(observed.date(observed.now), list(lines))
        self._lines = []
        self.metrics.saw(observed, tracked, dict(self._counts))
        self.status.update(
            observed,
            tracked,
            self._rows,
            changed=changed,
            returned=self._returned,
            errors=self._errors,
        )

    def _rows_of_last_daemon(self) -> dict[str, Row]:
        """What the daemon before this one wrote, if it ran since the machine was booted."""
        try:
            return read(self.status.path).nodes
        except StatusError:
            return {}

    def _take_requests(self, observed: ObservedState) -> None:
        requests = {request.id: request for request in observed.requests}
        if requests.keys() == self._requests.keys():
            return
        for request_id, request in requests.items():
            if request_id not in self._requests:
                self.metrics.requested(request)
                self._lines.append(events.of_request(request, observed.date(request.asked)))
        self._requests = requests
        self._requested_by = {}
        for request in observed.requests:
            # SLURM asks again for a node only when the jobs of its earlier request don't wait.
            jobs: dict[str, list[int]] = {}
            for job in request.jobs:
                for node in job.nodes:
                    jobs.setdefault(node, []).append(job.id)
            for node in request.nodes:
                self._requested_by[node] = (request.id, tuple(jobs.get(node, ())))

    def _take_actions(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self.metrics.acted(action)
            self._lines.append(events.of_action(action, self._requests, self._owner))
            if isinstance(action, Insert):
                self._asks[action.id] = action.names
            elif isinstance(action, ReleaseNodes):
                self._released |= dict.fromkeys(action.names, action.reason)
                # Its request may be closed before it ends.
                self._waited[action] = {name: self._owner(name)[1] for name in action.names}

    def _take_release(self, observed: ObservedState, event: Released) -> None:
        waited, action = self._waited.pop(event.action, {}), event.action
        self.metrics.released(len(event.names))
        if not event.names:
            return
        jobs = {job: None for name in event.names for job in waited.get(name, ())}
        for job in jobs:
            self._returned.pop(job, None)
            self._returned[job] = Returned(observed.date(observed.now), action.reason)
        of_jobs = f" ({fold(f'job-{job}' for job in jobs)})" if jobs else ""
        while len(self._returned) > RETURNED:
            del self._returned[next(iter(self._returned))]
        log.warning("released: %s%s: %s", fold(event.names), of_jobs, one_line(action.reason))

    def _owner(self, name: str) -> tuple[str, tuple[int, ...]]:
        if name in self._requested_by:
            return self._requested_by[name]
        row = self._rows.get(name) or self._before.get(name)
        return (row.request, row.jobs) if row else ("", ())

    def _take_events(self, observed: ObservedState) -> None:
        for event in observed.events:
            asked = self._asks.pop(event.id, ()) if isinstance(event, Inserted) else ()
            self._lines += events.of_event(event, asked, self._owner)
            if isinstance(event, Released):
                self._take_release(observed, event)
            for verb, failure, names in events.failures(event, asked):
                self.metrics.failed(event, failure, max(1, len(names)))
                what = f"{verb} {fold(names) or 'nodes'}"
                error = LastError(observed.date(observed.now), what, failure.code, failure.message)
                sets = {set_name(observed.cluster, name) for name in names} or observed.sets
                self._errors |= dict.fromkeys(sets, error)

    def _take_stages(self, observed: ObservedState, tracked: TrackedState) -> bool:
        """Take the stages that have changed; return whether any has."""
        for name in list(self._released):
            if tracked.node(name).phase is not Phase.RELEASED:
                del self._released[name]
        if self._seen is None:
            views: dict[str, View | None] = dict(stages(observed, tracked, self._released))
        else:
            names = touched(self._seen, (observed, tracked))
            views = {name: stage(observed, tracked, self._released, name) for name in names}
        self._seen = (observed, tracked)
        changed = False
        for name, view in views.items():
            row = self._rows.get(name)
            if view is None:
                self._vanishes(observed, name, row)
            elif row is None:
                self._appears(observed, name, view)
            elif row.view is not view and row.view != view:
                self._changes(observed, tracked, name, row, view)
            else:
                continue
            changed = True
        return changed

    def _vanishes(self, observed: ObservedState, name: str, row: Row | None) -> None:
        """Take a name that neither a node nor a VM has any more."""
        if row:
            del self._rows[name]
            self._count(observed, name, row.view.stage, -1)
            self._lines.append(events.of_removed(name))

    def _appears(self, observed: ObservedState, name: str, view: View) -> None:
        """Take a node that is seen for the first time; the last daemon may know since when."""
        before = self._before.get(name)
        request, jobs = self._requested_by.get(name, ("", ()))
        if before and not request and view.stage not in (Stage.IDLE, Stage.OFF):
            request, jobs = before.request, before.jobs
        was = before.view.stage if before else Stage.OFF
        since = before.since if before and was is view.stage else observed.date(observed.now)
        self._rows[name] = row = Row(view, since, jobs, request)
        self._count(observed, name, view.stage, 1)
        if view.stage is not was:
            self._lines.append(events.of_stage(name, row, None, 0, {}))

    def _changes(
        self, observed: ObservedState, tracked: TrackedState, name: str, row: Row, view: View
    ) -> None:
        before = row.view.stage
        if view.stage is before:
            self._rows[name] = replace(row, view=view)
            return
        since, request, jobs = observed.date(observed.now), row.request, row.jobs
        start = tracked.node(name).start
        asked = start.asked if start else observed.now
        if view.stage in POWERING_UP:
            if before not in POWERING_UP:
                # SLURM asked a moment before this pass.
                since = observed.date(asked)
            request, jobs = self._requested_by.get(name, (request, jobs))
        elif view.stage in (Stage.IDLE, Stage.OFF):
            request, jobs = "", ()
        for_s = max(0.0, since - row.since)
        self._rows[name] = row = Row(view, since, jobs, request)
        phases = self._cold.reached(name, view.stage, observed.now, asked) or {}
        self.metrics.started(phases)
        self._count(observed, name, before, -1)
        self._count(observed, name, view.stage, 1)
        self._lines.append(events.of_stage(name, row, before, for_s, phases))

    def _count(self, observed: ObservedState, name: str, stage: Stage, by: int) -> None:
        self._counts[set_name(observed.cluster, name), stage] += by
