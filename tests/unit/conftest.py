"""Settings of hypothesis, and totals of the autoscaler's randomized fault-injection tests.

A session of all shards fails if a kind of fault occurred too rarely: it proves nothing about it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings

# How long one example takes says only how busy the machine is.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")

LEAST = 20
"""How often each kind of fault occurs in all shards together, at least."""


class FaultTotals:
    """Sums over the shards of one test that were run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seed = self.shards = self.shards_run = 0

    def add(self, shard: Mapping[str, Any]) -> None:
        """Add what a shard has recorded."""
        self.counts.update(shard["faults"])
        self.seed, self.shards = shard["seed"], shard["shards"]
        self.shards_run += 1

    @property
    def rare(self) -> list[str]:
        """The faults that were too rare; [] if not all shards were run."""
        if self.shards_run < self.shards:
            return []
        return sorted(name for name, count in self.counts.items() if count < LEAST)


def _totals(reporter: pytest.TerminalReporter) -> dict[str, FaultTotals]:
    # Reports have the properties of all processes of pytest-xdist.
    totals: dict[str, FaultTotals] = {}
    for report in reporter.getreports("passed") + reporter.getreports("failed"):
        shard = dict(report.user_properties)
        if report.when == "call" and "fault_runs" in shard:
            totals.setdefault(shard["fault_runs"], FaultTotals()).add(shard)
    return totals


def pytest_sessionfinish(session: pytest.Session) -> None:
    # The workers of pytest-xdist have no reporter and don't know each other's results.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    rare = reporter and any(total.rare for total in _totals(reporter).values())
    if rare and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for test, total in _totals(terminalreporter).items():
        terminalreporter.section(f"fault injection into {test}: MUSTER_SEED={total.seed}")
        counts = sorted(total.counts.items())
        terminalreporter.line(", ".join(f"{name}: {count}" for name, count in counts))
        if total.rare:
            terminalreporter.line(
                f"error: fewer than {LEAST} times in all {total.shards} shards: "
                f"{', '.join(total.rare)}; the run proves nothing about it",
                red=True,
            )
    found = [
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "planted" and report.when == "call"
    ]
    if found:
        terminalreporter.section("planted bugs that the oracle found")
        for line in sorted(found):
            terminalreporter.line(line)
