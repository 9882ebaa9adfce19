"""The daemon is killed (SIGKILL) or stopped (SIGSTOP) at marked points; all jobs end as usual."""

from pathlib import Path

import pytest
from faulty_cloud import watch_operations
from killed_daemon import KilledDaemonRun, Mark
from test_daemon_in_trouble import report, run_all

pytestmark = pytest.mark.proof(
    "the real daemon waits in real time, and the machine must not be busy"
)

MARKS = (
    *(Mark("change", number, after) for number in range(1, 9) for after in (False, True)),
    *(Mark("read", number, after) for number in range(1, 21, 2) for after in (False, True)),
    *(Mark("scontrol", number) for number in range(1, 18)),
    *(Mark("spool", number) for number in range(1, 4)),
)
STOPPED = (
    *(Mark("change", number, after, 20) for number in (1, 2, 5) for after in (False, True)),
    *(Mark("read", number, stops_s=60) for number in (3, 7, 11)),
    *(Mark("scontrol", number, stops_s=60) for number in (4, 9, 14)),
    *(Mark("spool", number, stops_s=300) for number in (1, 2, 3)),
    *(Mark("change", number, stops_s=300) for number in (3, 6)),
)
SHARDS = 3


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whenever_it_is_killed_a_restarted_daemon_reaches_the_same_end(
    shard: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_operations(monkeypatch)
    marks = MARKS[shard::SHARDS]
    wrong = run_all([KilledDaemonRun(mark, tmp_path / str(mark)) for mark in marks])
    assert report(wrong) == ""


def test_whenever_it_is_stopped_it_reaches_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_operations(monkeypatch)
    wrong = run_all([KilledDaemonRun(mark, tmp_path / str(mark)) for mark in STOPPED])
    assert report(wrong) == ""
