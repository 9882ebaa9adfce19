"""Each process of a training reports to the first one, which says who is slow and who is lost.

A thread in each process does so once a second, by a connection of its own, so it works beside each
framework, and while that waits. When a process is lost, all of them end within half a minute, and
not at the job's time limit. The rules are in judge.py.
"""

import json
import os
import platform
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from judge import LOST, SILENT_SECONDS, End, Judge

REPORT_SECONDS = 1.0
"""Between two reports."""
KEY_BYTES, KEY_SECONDS = 32, 5.0
"""The secret with which a connection begins, and how long the first process waits for it."""
SAVE_SECONDS = 20.0
"""How long the end waits for a checkpoint that is being saved."""
STRANGERS = 10
"""So many connections without it are told: another job could fill the output with more."""


class Timer:
    """The time of this process's own work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step, self._steps, self._spent, self._mean = 0, 0, 0.0, 0.0
        self._since: float | None = None

    @contextmanager
    def work(self, step: int) -> Iterator[None]:
        """Measure the work of a step."""
        with self._lock:
            self._step, self._since = step, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._spent += time.monotonic() - (self._since or 0.0)
                self._steps, self._since = self._steps + 1, None

    def report(self) -> dict[str, object]:
        """Return the step, the mean time of those since the last report, and of one under way."""
        with self._lock:
            if self._steps:
                self._mean = self._spent / self._steps
            self._steps, self._spent = 0, 0.0
            running = time.monotonic() - self._since if self._since else 0.0
            return {"step": self._step, "seconds": self._mean, "running": running}


class Workers:
    """The processes of a training, as one of them sees them: a context for its steps.

    Args:
        rank: Of this process; the first one, 0, judges.
        processes: How many there are.
        lost: File that gets the sentence about a lost process; the job script looks for it.
        patience: Seconds in one step after which a process that keeps the others waiting is stuck.

    """

    def __init__(
        self, rank: int, processes: int, lost: Path, patience: float = SILENT_SECONDS
    ) -> None:
        self._patience, self._saving = patience, threading.Lock()
        self._rank, self._processes, self._lost = rank, processes, lost
        self._timer, self._error, self._over = Timer(), "", threading.Event()
        self._listener = socket.create_server(("", 0), backlog=processes) if rank == 0 else None
        self._port = self._listener.getsockname()[1] if self._listener else 0
        self._host, self._key = "", secrets.token_bytes(KEY_BYTES)
        self._strangers = 0
        self._end: End | None = None

    @property
    def meeting(self) -> tuple[int, str]:
        """Return the first process's port, and the key of reports: other jobs reach the port too.

        It tells the others by its framework.
        """
        return self._port, self._key.hex()

    def meet(self, host: str, meeting: tuple[int, str]) -> None:
        """Take the first process's node and its `meeting`; before the steps, when all are there."""
        self._host, (self._port, key) = host, meeting
        self._key = bytes.fromhex(key)

    def work(self, step: int) -> AbstractContextManager[None]:
        """Return a context for what this process does in a step without waiting for others."""
        return self._timer.work(step)

    def saving(self) -> AbstractContextManager[object]:
        """Return a context for saving: when another one is lost, this one ends after it."""
        return self._saving

    def __enter__(self) -> None:
        self._lock = threading.Lock()
        self._judge = Judge(self._processes, time.monotonic(), self._patience)
        if self._listener:
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        watch = self._watch if self._listener else self._tell
        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: object, _trace: object) -> None:
        if kind is not None:
            self._error = f"{kind.__name__}: {error}".splitlines()[0][:300]
        self._over.set()
        # The first one stays until all are done. Who fails stays until it is known who is to blame:
        # the framework says no more than that a connection is closed.
        self._thread.join()

    def _report(self) -> dict[str, object]:
        ending = {"done": not self._error, "error": self._error} if self._over.is_set() else {}
        who = {"rank": self._rank, "node": platform.node()}
        return {**who, **self._timer.report(), **ending}

    # -- the first process ------------------------------------------------------------------------

    def _watch(self) -> None:
        """Judge, until all are done or have to end."""
        found: float | None = None
        while True:
            self._over.wait(REPORT_SECONDS)
            now = time.monotonic()
            with self._lock:
                self._judge.report(self._report(), now)
                end, slow, done = self._judge.end(now), self._judge.slow(), self._judge.all_done
            for sentence in slow:
                print(sentence, flush=True)
            if done:
                return
            if end:
                # What is worse may show a moment later: those who fail have lost another one.
                found = found or now
                if now - found > 2 * REPORT_SECONDS:
                    break
            if self._over.is_set():
                time.sleep(REPORT_SECONDS / 10)
        self._end = end
        # All others hear it with the answer to their next report.
        time.sleep(2 * REPORT_SECONDS)
        if end.code == LOST or not self._error:
            self._leave(end)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, (host, *_) = listener.accept()
            threading.Thread(target=self._admit, args=(connection, host), daemon=True).start()

    def _admit(self, connection: socket.socket, host: str) -> None:
        """Listen to who has the key; of others nothing is parsed."""
        with connection:
            try:
                connection.settimeout(KEY_SECONDS)
                given = _exactly(connection, KEY_BYTES)
            except OSError:
                given = b""
            if secrets.compare_digest(given, self._key):
                connection.settimeout(None)
                self._listen(connection)
                return
        with self._lock:
            self._strangers += 1
            number = self._strangers
        if number <= STRANGERS:
            more = "; others are not told" if number == STRANGERS else ""
            print(f"a stranger at {host} has no key: the connection is closed{more}", flush=True)

    def _listen(self, connection: socket.socket) -> None:
        """Take the reports of a process, and answer each."""
        rank: int | None = None
        with connection.makefile("rw", encoding="utf-8") as stream:
            try:
                for line in stream:
                    said = json.loads(line)
                    rank = int(said["rank"])
                    with self._lock:
                        self._judge.report(said, time.monotonic())
                    answer = {"why": self._end.why, "code": self._end.code} if self._end else {}
                    stream.write(json.dumps(answer) + "\n")
                    stream.flush()
            except (OSError, ValueError, KeyError) as error:
                # The judge concludes what that means.
                print(f"the connection of worker {rank} ended: {error!r}", flush=True)
        if rank is not None:
            with self._lock:
                self._judge.closed(rank)

    # -- the others -------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Report once a second, until this one is done, or hears that all have to end."""
        step: object = 0
        try:
            with (
                socket.create_connection((self._host, self._port), SILENT_SECONDS) as connection,
                connection.makefile("rw", encoding="utf-8") as stream,
            ):
                connection.sendall(self._key)
                while True:
                    report = self._report()
                    step = report["step"]
                    stream.write(json.dumps(report) + "\n")
                    stream.flush()
                    line = stream.readline()
                    if not line:
                        raise ConnectionError("the connection was closed")
                    answer = json.loads(line)
                    if answer and not self._error:
                        # The first one says the sentence.
                        os._exit(answer["code"])
                    if answer or report.get("done"):
                        return
                    self._over.wait(REPORT_SECONDS)
                    if report.get("error"):
                        time.sleep(REPORT_SECONDS)
        except OSError as error:
            why = f"worker 0 on {self._host} is lost in step {step} ({error}): its node may be down"
            self._leave(End(0, f"{why} (sinfo -R)", LOST))

    def _leave(self, end: End) -> None:
        """End this process, whose main thread may wait for one that is gone."""
        print(end.why, flush=True)
        # Not in the middle of saving; but a file server may be what is lost.
        last = threading.Thread(target=self._write, args=(end,), daemon=True)
        last.start()
        last.join(SAVE_SECONDS)
        os._exit(end.code)

    def _write(self, end: End) -> None:
        """Write what the job script looks for, and wait until the checkpoint is whole."""
        try:
            if end.code == LOST:
                self._lost.write_text(f"{end.why}\n", encoding="utf-8")
        finally:
            self._saving.acquire()


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes of a connection, or fewer where it ends before."""
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found
