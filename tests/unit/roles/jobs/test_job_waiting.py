"""Why a job waits, from what squeue of both releases has printed."""

from datetime import datetime, timedelta
from pathlib import Path

import jobs_library  # noqa: F401 (makes muster_jobs importable)
import pytest
from muster_jobs import waiting
from muster_jobs.waiting import Entry

NOW = datetime.fromisoformat("2026-11-27T09:00:00")


@pytest.fixture
def queue(release: str) -> dict[str, Entry]:
    """The queue of two nodes, one of them drained: number -> job."""
    text = (Path(__file__).parent / "squeue" / f"{release}.txt").read_text(encoding="utf-8")
    return {entry.job: entry for entry in waiting.parse(text)}


def told(entry: Entry, ahead: "int | None" = None) -> str:
    return "\n".join(waiting.sentences(entry, ahead, NOW))


def test_only_jobs_that_have_not_started_wait(queue: dict[str, Entry]) -> None:
    assert [job for job, entry in queue.items() if not entry.waits] == ["4"]


def test_a_job_waits_for_nodes_that_are_out_of_service(queue: dict[str, Entry]) -> None:
    assert "It waits: nodes that it needs are out of service, or reserved" in told(queue["5"])
    assert "It waits: a node that it needs is out of service, reserved" in told(queue["10"])
    assert "What you can do: sinfo -R says why" in told(queue["10"])


def test_a_held_job_is_released_by_its_number(queue: dict[str, Entry]) -> None:
    assert "What you can do: scontrol release 7" in told(queue["7"])


def test_an_array_is_named_by_its_number(queue: dict[str, Entry]) -> None:
    entry = queue["9_[1-6%1]"]
    assert "It waits: others are first" in told(entry)
    limited = Entry(**{**vars(entry), "reason": "JobArrayTaskLimit"})
    assert "scontrol update jobid=9 arraytaskthrottle=NUMBER" in told(limited)


def test_who_is_before_it_is_counted(queue: dict[str, Entry]) -> None:
    assert "3 waiting jobs of the partition are before it (ml-gpu)" in told(queue["5"], 3)
    assert "1 waiting job of the partition is before it (ml-gpu)" in told(queue["5"], 1)
    assert "before it" not in told(queue["5"], 0) + told(queue["5"])


def test_when_it_may_start_is_told_as_a_time_and_a_wait(queue: dict[str, Entry]) -> None:
    start = datetime.fromisoformat(queue["8"].start)
    said = waiting.sentences(queue["8"], None, start - timedelta(hours=2, minutes=30))
    assert said[-1].startswith(f"SLURM expects it to start at {queue['8'].start}, in 02:30:00: ")
    late = waiting.sentences(queue["8"], None, start + timedelta(seconds=1))
    assert late[-1] == f"SLURM expected it to start at {queue['8'].start}, and plans again"
    assert "expects" not in told(queue["5"])


@pytest.mark.parametrize("state", ["CONFIGURING", "POWER_UP_NODE", "SUSPENDED", "REQUEUE_HOLD"])
def test_a_state_in_which_nothing_runs_is_told(queue: dict[str, Entry], state: str) -> None:
    entry = Entry(**{**vars(queue["4"]), "state": state})
    assert entry.waits
    assert told(entry).startswith("It waits: ")
    assert "(None)" not in told(entry)
    assert "expects" not in told(entry)


def test_tasks_that_wait_for_the_same_are_told_once(queue: dict[str, Entry]) -> None:
    alike = [Entry(**{**vars(queue["7"]), "job": job}) for job in ("12_1", "12_2", "12_3")]
    assert waiting.grouped([*alike, queue["5"]]) == [(alike[0], 3), (queue["5"], 1)]


def test_a_reason_may_have_the_separator_and_line_breaks() -> None:
    (entry,) = waiting.parse("1|PENDING|N/A|5|p|1|ada|a|b\x1b[31m\n")
    assert (entry.reason, entry.priority) == ("a|b [31m", 5)
    assert waiting.parse("half a line\n") == []
