"""What the priority of a job is made of.

sprio's answers were recorded with those of scontrol (test_job_limits.py), of jobs that had waited
for two minutes: one that waits as usual, with --nice=100, with a nice of -100, of which a priority
was set by hand, that is held, and an array.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import jobs_library  # noqa: F401 (makes muster_jobs importable)
import pytest
from muster_jobs import priority

FOLDER = Path(__file__).parent / "sprio"


class Sprio:
    """sprio, which prints what it printed of a job."""

    def __init__(self, release: str, job: str, code: int = 0) -> None:
        lines = (FOLDER / f"{release}.txt").read_text(encoding="utf-8").splitlines()
        answers = {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
        self.factors, self.weights, self.code = answers[job], answers["weights"], code
        self.asked: list[Sequence[str]] = []

    def __call__(
        self, command: Sequence[str], timeout: float, data: "bytes | None" = None
    ) -> SimpleNamespace:
        assert timeout > 0
        assert data is None
        self.asked.append(command)
        text = self.weights if "--weights" in command else self.factors
        return SimpleNamespace(
            returncode=self.code, stdout=f"{text}\n".encode(), stderr=b"priority/basic"
        )


def test_factors_that_count_are_told_with_their_weights(release: str) -> None:
    run = Sprio(release, "array")
    total, age = {"22.05": (102588, 281), "24.11": (102613, 306)}[release]
    assert priority.sentence("12", run) == (
        f"Its priority is {total}: 92308 of 100000 for fairshare (less, the more its owner and its "
        f"account have used), {age} of 10000 for the time that it has waited, 10000 of 50000 for "
        "its QoS"
    )
    assert "--jobs=12" in run.asked[0]
    assert not any(word.startswith("--jobs") for word in run.asked[1])


@pytest.mark.parametrize(
    ("job", "end"),
    [
        ("waits", "0 of 50000 for its QoS"),
        ("nice", ", less 100 by --nice"),
        ("nice-up", ", 100 by --nice"),
        ("by-hand", "Its priority is 5: it was set by hand"),
    ],
)
def test_nice_and_a_priority_by_hand_are_told(release: str, job: str, end: str) -> None:
    assert priority.sentence("12", Sprio(release, job)).endswith(end)


@pytest.mark.parametrize("job", ["held", "running", "unknown"])
def test_of_a_job_that_has_no_factors_nothing_is_told(release: str, job: str) -> None:
    assert priority.sentence("12", Sprio(release, job)) == ""


def test_where_jobs_start_in_their_order_nothing_is_told(release: str) -> None:
    assert priority.sentence("12", Sprio(release, "waits", code=1)) == ""


def test_without_weights_nothing_is_told(release: str) -> None:
    run = Sprio(release, "waits")
    run.factors, run.weights = "0 0 0 0 0 0 0 0", "0 0 0 0 0 0"
    assert priority.sentence("12", run) == ""
