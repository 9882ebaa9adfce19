"""What the priority of a job is made of; sprio's answers are made after src/sprio/print.c."""

from collections.abc import Sequence
from types import SimpleNamespace

import jobs_library  # noqa: F401 (makes muster_jobs importable)
import pytest
from muster_jobs import priority

WEIGHTS = "100000 10000 50000 0 0 0\n"


class Sprio:
    """sprio, which prints what it is told."""

    def __init__(self, factors: str, weights: str = WEIGHTS, code: int = 0) -> None:
        self.factors, self.weights, self.code = factors, weights, code
        self.asked: list[Sequence[str]] = []

    def __call__(
        self, command: Sequence[str], timeout: float, data: "bytes | None" = None
    ) -> SimpleNamespace:
        assert timeout > 0
        assert data is None
        self.asked.append(command)
        text = self.weights if "--weights" in command else self.factors
        return SimpleNamespace(returncode=self.code, stdout=text.encode(), stderr=b"priority/basic")


def test_factors_that_count_are_told_with_their_weights() -> None:
    run = Sprio("61234 0 51000 234 10000 0 0 0\n")
    assert priority.sentence("12", run) == (
        "Its priority is 61234: 51000 of 100000 for fairshare (less, the more its owner and its "
        "account have used), 234 of 10000 for the time that it has waited, 10000 of 50000 for its "
        "QoS"
    )
    assert "--jobs=12" in run.asked[0]
    assert not any(word.startswith("--jobs") for word in run.asked[1])


@pytest.mark.parametrize(
    ("factors", "end"),
    [
        ("134 100 0 234 0 0 0 0\n", ", less 100 by --nice"),
        ("334 -100 0 234 0 0 0 0\n", ", 100 by --nice"),
        ("5 0 0 0 0 0 0 0\n", "Its priority is 5: it was set by hand"),
    ],
)
def test_nice_and_a_priority_by_hand_are_told(factors: str, end: str) -> None:
    assert priority.sentence("12", Sprio(factors)).endswith(end)


@pytest.mark.parametrize(
    "run",
    [
        Sprio("", code=1),
        Sprio(""),
        Sprio("Unable to find jobs matching user/id(s) specified\n"),
        Sprio("0 0 0 0 0 0 0 0\n", "0 0 0 0 0 0\n"),
    ],
    ids=["no such plugin", "held", "no such job", "no weights"],
)
def test_without_factors_nothing_is_told(run: Sprio) -> None:
    assert priority.sentence("12", run) == ""
