"""examples/ddp/judge.py and workers.py: who is slow, who is lost, and how soon all of them end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from documentation import ROOT

EXAMPLE = ROOT / "examples/ddp"


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import judge

    return judge


def said(rank: int, step: int = 7, seconds: float = 0.1, **more: object) -> dict[str, object]:
    report = {"rank": rank, "node": f"node-{rank}", "step": step, "seconds": seconds, "running": 0}
    return {**report, **more}


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ([0.1], {}),
        ([0.1, 0.1], {}),
        # Of two: the median of all would be the mean, which nobody exceeds twice.
        ([0.1, 0.3], {1: 0.1}),
        ([0.3, 0.1, 0.12], {0: 0.11}),
        ([0.1, 0.1, 0.19, 0.1], {}),
        # Five times the others, but milliseconds.
        ([0.001, 0.005], {}),
        ([0.1, 0.1, 0.5, 0.5], {2: 0.1, 3: 0.1}),
        # The usual is what most take.
        ([0.1, 0.5, 0.5, 0.5, 0.5], {}),
        ([0.1, 0.1, 0.1, 0.5, 0.5], {3: 0.1, 4: 0.1}),
    ],
)
def test_slow_is_who_takes_twice_the_median_of_the_others(
    judge: Any, seconds: list[float], slow: dict[int, float]
) -> None:
    assert judge.stragglers(dict(enumerate(seconds))) == pytest.approx(slow)


def test_a_straggler_is_named_once_and_again_when_it_was_not_for_a_while(judge: Any) -> None:
    court = judge.Judge(2, 0.0)

    def told(seconds: float, reports: int) -> list[str]:
        sentences = []
        for _ in range(reports):
            court.report(said(0), 1.0)
            court.report(said(1, seconds=seconds), 1.0)
            sentences += court.slow()
        return sentences

    assert told(0.9, judge.SLOW_REPORTS - 1) == []
    assert told(0.1, 1) == []
    [sentence] = told(0.9, 4 * judge.SLOW_REPORTS)
    assert sentence.startswith("worker 1 on node-1 is slow: step 7 takes it 0.90 s, and the others")
    assert told(0.1, 1) == []
    assert len(told(0.9, judge.SLOW_REPORTS)) == 1


def test_a_run_whose_workers_report_goes_on(judge: Any) -> None:
    court = judge.Judge(2, 0.0)
    for now in range(0, 100, 10):
        court.report(said(0), now)
        court.report(said(1, running=now if now < 20 else 0), now)
        assert court.end(now) is None
    assert not court.all_done
    for rank in (0, 1):
        court.report(said(rank, done=True), 100)
    court.closed(1)
    assert court.all_done
    assert court.end(1000) is None


@pytest.mark.parametrize(
    ("happens", "sentence", "code"),
    [
        (
            lambda court: court.closed(1),
            "worker 1 on node-1 has ended in step 7 without a word",
            75,
        ),
        (lambda court: court.report(said(1, running=21), 29), "is stuck in step 7 for 21 s", 75),
        (lambda court: court.report(said(1, error="ValueError: x"), 29), "ValueError: x", 1),
        (lambda _: None, "worker 1 on node-1 is silent since step 7, for 29 s", 75),
    ],
)
def test_a_run_ends_for_the_worker_that_is_to_blame(
    judge: Any, happens: Callable[[Any], None], sentence: str, code: int
) -> None:
    court = judge.Judge(3, 0.0)
    court.report(said(1), 1)
    happens(court)
    # Worker 2 says what its framework says of it: a connection is closed.
    court.report(said(2, error="RuntimeError: closed"), 30)
    court.report(said(0), 30)
    end = court.end(30)
    assert sentence in end.why
    assert end.code == code


def test_a_step_may_take_longer_where_the_run_is_told_so(judge: Any) -> None:
    court = judge.Judge(2, 0.0, 110.0)
    court.report(said(0), 100)
    court.report(said(1, running=100), 100)
    assert court.end(100) is None
    court.report(said(0), 111)
    court.report(said(1, running=111), 111)
    assert "is stuck in step 7 for 111 s" in court.end(111).why


def test_the_end_waits_for_a_checkpoint_that_is_being_saved(
    judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import workers

    done: list[str] = []
    monkeypatch.setattr(workers.os, "_exit", lambda code: done.append(f"ended with {code}"))
    first = workers.Workers(0, 2, tmp_path / "lost")
    with first.saving():
        leaving = threading.Thread(target=first._leave, args=(judge.End(0, "why", judge.LOST),))
        leaving.start()
        time.sleep(0.2)
        done.append("saved")
    leaving.join(10)
    first._listener.close()
    assert done == ["saved", "ended with 75"]


def test_a_file_server_that_does_not_answer_keeps_nobody(
    judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import workers

    done: list[int] = []
    monkeypatch.setattr(workers.os, "_exit", done.append)
    monkeypatch.setattr(workers, "SAVE_SECONDS", 0.2)
    # Who opens a pipe to write waits for a reader.
    os.mkfifo(tmp_path / "lost")
    first = workers.Workers(0, 2, tmp_path / "lost")
    leaving = threading.Thread(
        target=first._leave, args=(judge.End(0, "why", judge.LOST),), daemon=True
    )
    leaving.start()
    leaving.join(5)
    ended = list(done)
    first._listener.close()
    with (tmp_path / "lost").open() as reader:
        assert reader.read() == "why\n"
    assert ended == [75]


def test_a_worker_that_never_reported_is_lost_too(judge: Any) -> None:
    court = judge.Judge(2, 0.0)
    court.report(said(0), 21)
    assert "worker 1 on an unknown node is silent" in court.end(21).why


# -- real processes, without a framework: a barrier of files is what all wait for -----------------

PROGRAM = """
import json, pathlib, sys, time
sys.path.insert(0, {example!r})
from workers import Workers
rank, folder, how = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
workers = Workers(rank, 2, folder / "lost")
if rank == 0:
    (folder / "new").write_text(json.dumps(workers.meeting))
    (folder / "new").rename(folder / "meeting")
while not (folder / "meeting").exists():
    time.sleep(0.05)
workers.meet("127.0.0.1", tuple(json.loads((folder / "meeting").read_text())))
with workers:
    for step in range({{"ends": 20, "ends later": 300}}.get(how, 10000)):
        with workers.work(step):
            time.sleep(0.2 if how == "slow" and rank else 0.01)
        if how == "fails" and rank and step == 100:
            raise ValueError("a bug")
        (folder / f"at-{{step}}-{{rank}}").touch()
        while not (folder / f"at-{{step}}-{{1 - rank}}").exists():
            time.sleep(0.01)
print("whole", rank)
"""


class Pair:
    """Two processes that watch each other."""

    def __init__(self, folder: Path, how: str) -> None:
        self.lost, self.meeting = folder / "lost", folder / "meeting"
        self.processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    PROGRAM.format(example=str(EXAMPLE)),
                    str(rank),
                    folder,
                    how,
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in (0, 1)
        ]
        steps = 5
        while not (folder / f"at-{steps}-1").exists():
            time.sleep(0.05)

    def ended(self, rank: int) -> tuple[int, str]:
        """Wait for the end of a process; return its exit code and what it printed."""
        output, _ = self.processes[rank].communicate(timeout=30)
        return self.processes[rank].returncode, output


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[[str], Pair]]:
    made: list[Pair] = []

    def make(how: str) -> Pair:
        made.append(Pair(tmp_path, how))
        return made[-1]

    yield make
    for process in (process for one in made for process in one.processes):
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_a_run_in_which_all_is_well_ends_so(pair: Callable[[str], Pair]) -> None:
    both = pair("ends")
    assert both.ended(0) == (0, "whole 0\n")
    assert both.ended(1) == (0, "whole 1\n")
    assert not both.lost.exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_is_killed_the_other_says_so_and_ends(
    pair: Callable[[str], Pair], killed: int
) -> None:
    both = pair("runs")
    os.kill(both.processes[killed].pid, signal.SIGKILL)
    code, output = both.ended(1 - killed)
    assert code == 75
    assert f"worker {killed} on " in output
    assert both.lost.read_text() in output


def test_a_bug_is_no_loss_and_python_s_own_words_stay(pair: Callable[[str], Pair]) -> None:
    both = pair("fails")
    code, output = both.ended(1)
    assert code == 1
    assert "ValueError: a bug" in output
    code, output = both.ended(0)
    assert code == 1
    assert "has failed in step 100: ValueError: a bug" in output
    assert not both.lost.exists()


def test_a_stranger_s_report_does_not_count(pair: Callable[[str], Pair]) -> None:
    both = pair("ends later")
    port, _ = json.loads(both.meeting.read_text())
    lie = b'{"rank": 1, "error": "a lie"}\n'
    for words in b"", b"{}\n", lie, bytes(32) + lie, b"x" * 32 + lie:
        assert answer_to(words, port) == b"", f"{words!r} was answered"
    code, output = both.ended(0)
    assert code == 0, output
    assert output.count("a stranger at 127.0.0.1 has no key") == 5
    assert both.ended(1) == (0, "whole 1\n")


def test_of_a_stranger_nothing_is_parsed_and_ten_are_told(
    judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import workers

    def parsed(text: str) -> None:
        raise AssertionError(f"{text} was parsed")

    monkeypatch.setattr(workers.json, "loads", parsed)
    first = workers.Workers(0, 1, tmp_path / "lost")
    port, key = first.meeting
    assert len(bytes.fromhex(key)) == workers.KEY_BYTES == 32
    first.meet("127.0.0.1", (port, key))
    with first:
        for _ in range(12):
            answer_to(b'{"rank": 0, "step": 9, "error": "a lie", "seconds": 1}\n', port)
        until(lambda: first._strangers == 12)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == workers.STRANGERS
    assert said[-1].endswith("; others are not told")


def answer_to(words: bytes, port: int) -> bytes:
    """Return what a port answers to somebody; it may close the connection at any moment."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        with suppress(OSError):
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            return stranger.recv(100)
    return b""


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, five seconds at most."""
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.proof("waits 20 s for a process that is stopped")
def test_one_that_is_stopped_is_lost_within_half_a_minute(pair: Callable[[str], Pair]) -> None:
    both = pair("runs")
    os.kill(both.processes[1].pid, signal.SIGSTOP)
    code, output = both.ended(0)
    assert code == 75
    assert "worker 1 on " in output
    assert "is silent since step" in output


@pytest.mark.proof("waits 5 s for a sentence")
def test_a_slow_one_is_named_while_the_run_goes_on(pair: Callable[[str], Pair]) -> None:
    both = pair("slow")
    stream = both.processes[0].stdout
    assert stream
    assert "worker 1 on " in (line := stream.readline())
    assert "is slow: step" in line
    assert both.processes[0].poll() is None
