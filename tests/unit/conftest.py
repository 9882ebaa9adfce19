"""The games of the autoscaler, all lots together: seeds, and how often each fault occurred.

A run of all lots in which a class of faults came too seldom fails: it has proved nothing of it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

LEAST = 20
"""How often each class of faults occurs in all lots together, at least."""


class Games:
    """Games of one kind, as far as their lots were played."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seed = self.lots = self.played = 0

    def add(self, lot: Mapping[str, Any]) -> None:
        """Take what a lot has recorded."""
        self.counts.update(lot["faults"])
        self.seed, self.lots = lot["seed"], lot["lots"]
        self.played += 1

    @property
    def rare(self) -> list[str]:
        """What came too seldom; of a part of the lots nothing is asked."""
        if self.played < self.lots:
            return []
        return sorted(name for name, count in self.counts.items() if count < LEAST)


def _games(reporter: pytest.TerminalReporter) -> dict[str, Games]:
    # Of all processes of pytest-xdist: reports carry the properties.
    found: dict[str, Games] = {}
    for report in reporter.getreports("passed") + reporter.getreports("failed"):
        lot = dict(report.user_properties)
        if report.when == "call" and "games" in lot:
            found.setdefault(lot["games"], Games()).add(lot)
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    # The processes of pytest-xdist have none, and don't know of each other.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    rare = reporter and any(games.rare for games in _games(reporter).values())
    if rare and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for kind, games in _games(terminalreporter).items():
        terminalreporter.section(f"games of {kind}: MUSTER_SEED={games.seed}")
        counts = sorted(games.counts.items())
        terminalreporter.line(", ".join(f"{name}: {count}" for name, count in counts))
        if games.rare:
            terminalreporter.line(
                f"error: fewer than {LEAST} times in all {games.lots} lots: "
                f"{', '.join(games.rare)}; the run proves nothing of it",
                red=True,
            )
