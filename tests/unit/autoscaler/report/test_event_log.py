import json
import re

import pytest

from muster.autoscaler.report.event_log import EventLog


@pytest.fixture
def log(tmp_path):
    made = EventLog(tmp_path / "events.jsonl")
    yield made
    made.close()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_its_time_and_only_what_is_known(log):
    log.write(1777890000.5, [{"event": "stage", "node": "n", "zone": "", "was": None, "for_s": 0}])
    assert lines(log.path) == [
        {"time": "2026-05-04T10:20:00.500Z", "event": "stage", "node": "n", "for_s": 0}
    ]


def test_nothing_that_happened_is_no_line(log):
    log.write(1, [])
    assert not log.path.exists()


def test_text_of_others_stays_on_its_line(log):
    log.write(1, [{"event": "stage", "reason": 'a\nb "c" \x1b[2J ü'}])
    assert len(log.path.read_text().splitlines()) == 1
    assert re.fullmatch(r"[\x20-\x7e\n]*", log.path.read_text())
    assert lines(log.path)[0]["reason"] == 'a\nb "c" \x1b[2J ü'


def test_a_log_that_logrotate_has_moved_away_is_started_again(log, tmp_path):
    log.write(1, [{"event": "one"}])
    log.path.rename(tmp_path / "events.jsonl.1")
    log.write(2, [{"event": "two"}, {"event": "three"}])
    assert [line["event"] for line in lines(tmp_path / "events.jsonl.1")] == ["one"]
    assert [line["event"] for line in lines(log.path)] == ["two", "three"]


def test_a_folder_that_is_not_there_is_said_once_and_stops_nothing(tmp_path, caplog):
    log = EventLog(tmp_path / "gone" / "events.jsonl")
    for at in range(3):
        log.write(at, [{"event": "lost"}])
    assert [record.message for record in caplog.records] == [
        f"{log.path} can't be written: [Errno 2] No such file or directory: '{log.path}'; "
        "events are lost until it can"
    ]
    log.path.parent.mkdir()
    log.write(4, [{"event": "kept"}])
    assert [line["event"] for line in lines(log.path)] == ["kept"]
    log.close()


def test_a_disk_that_is_full_is_said_and_stops_nothing(caplog):
    from pathlib import Path

    log = EventLog(Path("/dev/full"))
    log.write(1, [{"event": "lost"}])
    assert "No space left on device" in caplog.text
    with pytest.raises(OSError, match="No space left"):
        log.close()
