"""Metrics for Prometheus: https://prometheus.io/docs/practices/naming/.

Served on this machine's loopback address only. Gauges are computed when Prometheus asks; counters
and histograms are kept up to date as things happen.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.autoscaler.clock import Clock
from muster.autoscaler.reconcile.model import (
    Action,
    CapacityPool,
    Delete,
    Deleted,
    Event,
    Failure,
    Insert,
    Inserted,
    ProbeResult,
    Request,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.report.cold_start import PHASES
from muster.autoscaler.report.lifecycle import Stage

ADDRESS = ("127.0.0.1", 9480)
"""Where Prometheus reads them; nobody can from elsewhere."""
COLD_START_S = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
CALL_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class MetricsError(Exception):
    """The metrics can't be served; the message is one sentence."""


class Budget(Protocol):
    """What was used of Google's rate limits: `muster.autoscaler.compute.driver.Budget`."""

    @property
    def calls(self) -> Mapping[tuple[str, str], int]:
        """(method, HTTP status or Google's code for the error) -> how often."""

    @property
    def waited_s(self) -> Mapping[str, float]:
        """Group of methods -> seconds that calls have waited to stay below the rate limit."""

    @property
    def pace(self) -> Mapping[str, float]:
        """Group of methods -> part of its rate that is used at present."""

    @property
    def left(self) -> Mapping[str, int]:
        """Group of methods -> calls that may be sent now without a wait."""

    @property
    def bulk(self) -> int:
        """Bulk operations under way."""


@dataclass(frozen=True)
class _LastPass:
    """The state after the last reconcile pass."""

    observed: ObservedState
    tracked: TrackedState
    nodes: Mapping[tuple[str, Stage], int] = field(default_factory=dict)
    """(node set, stage) -> how many."""


class Metrics(Collector):
    """All metrics of one daemon; `called` may be used by any thread."""

    def __init__(self, clock: Clock = Clock()) -> None:
        self.registry = CollectorRegistry()
        self.budget: Callable[[], Budget] | None = None
        """Returns what was used of Google's rate limits."""
        self._clock = clock
        self._last: _LastPass | None = None
        self.registry.register(self)
        registry = self.registry
        self._requests = Counter("muster_requests", "Calls of ResumeProgram", registry=registry)
        self._requested = Counter(
            "muster_requested_nodes", "Nodes that ResumeProgram was called for", registry=registry
        )
        self._actions = Counter(
            "muster_actions", "VMs or nodes that had an action", ["action"], registry=registry
        )
        self._failures = Counter(
            "muster_failures", "VMs whose action failed", ["action", "code"], registry=registry
        )
        self._cold = Histogram(
            "muster_cold_start_seconds",
            "Since the phase before, the first since SLURM's request, until the daemon saw it",
            ["phase"],
            buckets=COLD_START_S,
            registry=registry,
        )
        for phase in PHASES:
            self._cold.labels(phase)
        self._calls = Histogram(
            "muster_api_call_seconds",
            "Until Google answered a request; `batch` is many calls in one",
            ["method"],
            buckets=CALL_S,
            registry=registry,
        )

    def called(self, method: str, seconds: float) -> None:
        """Record how long a request to the cloud's API took."""
        self._calls.labels(method).observe(seconds)

    def requested(self, request: Request) -> None:
        """Count a call of ResumeProgram."""
        self._requests.inc()
        self._requested.inc(len(request.nodes))

    def acted(self, action: Action) -> None:
        """Count an action."""
        match action:
            case Insert(names=names):
                self._actions.labels("insert").inc(len(names))
            case Delete():
                self._actions.labels("delete").inc()

    def released(self, count: int) -> None:
        """Count nodes that are released."""
        self._actions.labels("release").inc(count)

    def failed(self, event: Event, failure: Failure, count: int) -> None:
        """Count the failures of an event."""
        names: dict[type[Event], str] = {
            Inserted: "insert",
            Deleted: "delete",
            ProbeResult: "probe",
        }
        self._failures.labels(names[type(event)], failure.code).inc(count)

    def started(self, phases: Mapping[str, float]) -> None:
        """Record the phases of a node's cold start, in seconds."""
        for phase, seconds in phases.items():
            self._cold.labels(phase).observe(seconds)

    def saw(
        self, observed: ObservedState, tracked: TrackedState, nodes: Mapping[tuple[str, Stage], int]
    ) -> None:
        """Keep the state after a reconcile pass; none of it is changed later."""
        self._last = _LastPass(observed, tracked, nodes)

    def describe(self) -> list[Metric]:
        """Describe nothing when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Compute the gauges."""
        if self._last:
            yield from _gauges(self._last, self._clock.monotonic())
        if self.budget:
            yield from _budget(self.budget())


def _gauges(last: _LastPass, now: float) -> Iterator[Metric]:
    observed, tracked = last.observed, last.tracked
    nodes = GaugeMetricFamily("muster_nodes", "Nodes by stage", labels=["set", "stage"])
    for (node_set, stage), count in last.nodes.items():
        nodes.add_metric([node_set, stage.value], count)
    yield nodes
    yield GaugeMetricFamily(
        "muster_open_requests",
        "Requests with a node that is neither in service nor released",
        len(observed.requests),
    )
    age = GaugeMetricFamily(
        "muster_reading_age_seconds", "Since slurmctld or the cloud was read", labels=["what"]
    )
    for what, at in (("slurmctld", observed.nodes_at), ("cloud", observed.vms_at)):
        if at:
            age.add_metric([what], max(0.0, now - at))
    yield age
    yield GaugeMetricFamily(
        "muster_reconcile_age_seconds", "Since the last reconcile pass", now - observed.now
    )
    breakers = GaugeMetricFamily(
        "muster_breaker",
        "1: open, the pool had no room and is not asked; 0.5: half open, it may be tried, or is",
        labels=["zone", "machine_type", "spot", "gpus"],
    )
    for pool, breaker in tracked.breakers.items():
        is_open = not breaker.trial and now < breaker.until
        breakers.add_metric(_labels(pool), 1 if is_open else 0.5)
    yield breakers
    room = GaugeMetricFamily(
        "muster_quota_room",
        "VMs that the quotas allow besides those that exist",
        labels=["zone", "machine_type", "spot", "gpus"],
    )
    for pool in observed.quotas.uses:
        most = observed.quotas.room(pool)
        if most is not None:
            room.add_metric(_labels(pool), most)
    yield room


def _labels(pool: CapacityPool) -> list[str]:
    return [pool.zone, pool.machine_type, "yes" if pool.spot else "no", pool.gpus]


def _budget(budget: Budget) -> Iterator[Metric]:
    calls = CounterMetricFamily(
        "muster_api_calls",
        "Calls by HTTP status, or Google's code for the error",
        labels=["method", "code"],
    )
    for (method, code), count in budget.calls.items():
        calls.add_metric([method, code], count)
    yield calls
    waited = CounterMetricFamily(
        "muster_api_waited_seconds",
        "Seconds that calls have waited to stay below the rate limit",
        labels=["group"],
    )
    pace = GaugeMetricFamily(
        "muster_api_pace",
        "Part of the allowed rate that is used; below 1: Google has refused calls for their rate",
        labels=["group"],
    )
    for group, seconds in budget.waited_s.items():
        waited.add_metric([group], seconds)
    for group, part in budget.pace.items():
        pace.add_metric([group], part)
    left = GaugeMetricFamily(
        "muster_api_calls_left", "Calls that may be sent now without a wait", labels=["group"]
    )
    for group, count in budget.left.items():
        left.add_metric([group], count)
    yield waited
    yield pace
    yield left
    yield GaugeMetricFamily("muster_api_bulk_operations", "Bulk operations under way", budget.bulk)


def serve(metrics: Metrics, at: tuple[str, int] = ADDRESS) -> Callable[[], None]:
    """Answer Prometheus in another thread; return a function that stops it.

    Raises:
        MetricsError: nobody can listen there.

    """
    address, port = at
    try:
        server, thread = start_http_server(port, address, metrics.registry)
    except OSError as error:
        raise MetricsError(
            f"metrics can't be served on {address}:{port}: {error}; `ss -ltnp` shows who has it"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
