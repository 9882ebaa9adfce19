"""What the games of the autoscaler print at the end: seeds, and how often each fault occurred."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Of all processes of pytest-xdist: reports carry the properties.
    counts: dict[str, Counter[str]] = {}
    seeds: dict[str, int] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        found = dict(report.user_properties)
        if report.when == "call" and "games" in found:
            counts.setdefault(found["games"], Counter()).update(found["faults"])
            seeds[found["games"]] = found["seed"]
    for kind, of in counts.items():
        terminalreporter.section(f"games of {kind}: MUSTER_SEED={seeds[kind]}")
        terminalreporter.line(", ".join(f"{name}: {of[name]}" for name in sorted(of)))
