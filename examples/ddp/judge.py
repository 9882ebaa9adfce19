"""Who of the processes of a training is slow, and who is lost: the rules, without a network.

In a training that waits for all gradients each process is as slow as the slowest. So what counts is
the time of its own work in a step, without the wait for others.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

SILENT_SECONDS = 20.0
"""After these without a report a process is lost: less than half a minute, more than a hiccup."""
SLOW_REPORTS = 5
"""Reports in a row that have to be slow: one slow step is no straggler."""
SLOW_FACTOR, SLOW_SECONDS = 2.0, 0.02
"""Slow is a step of this many times the median of the others', and this much longer."""
LOST, FAILED = 75, 1
"""Exit codes: a worker was lost, and another run may go on (EX_TEMPFAIL); an error of a program."""


def stragglers(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return the slow ones of some workers, with the median of the others.

    Args:
        seconds: Rank -> time of a step's own work.

    """
    slow = {}
    for rank, mine in seconds.items():
        others = [value for other, value in seconds.items() if other != rank]
        usual = statistics.median(others) if others else mine
        if mine > SLOW_FACTOR * usual and mine - usual > SLOW_SECONDS:
            slow[rank] = usual
    return slow


@dataclass
class Worker:
    """What is known of a process."""

    rank: int
    heard: float
    """When, in seconds of the first process's monotonic clock."""
    node: str = "an unknown node"
    step: int = 0
    seconds: float = 0.0
    """Of a step's own work."""
    running: float = 0.0
    """Since the begin of the work that it does now; 0: it waits for others."""
    slow: int = 0
    """Reports in a row, until now, in which it was."""
    closed: bool = False
    """Its connection is."""
    done: bool = False
    error: str = ""

    def __str__(self) -> str:
        return f"worker {self.rank} on {self.node}"


@dataclass(frozen=True, order=True)
class End:
    """Why all have to end."""

    doubt: int
    """An error may only follow from what happened to another process."""
    why: str
    code: int


class Judge:
    """What the first process concludes from the reports of all, its own among them.

    Args:
        processes: How many there are.
        now: Monotonic seconds, as all times here.
        patience: Seconds in one step after which a straggler is stuck.

    """

    def __init__(self, processes: int, now: float, patience: float = SILENT_SECONDS) -> None:
        self._patience = patience
        self._workers = {rank: Worker(rank, now) for rank in range(processes)}

    def report(self, said: Mapping[str, object], now: float) -> None:
        """Take the report of a process: rank, node, step, seconds, running; done or error."""
        worker = self._workers[int(str(said["rank"]))]
        worker.heard, worker.node = now, str(said["node"])
        worker.step, worker.seconds = int(str(said["step"])), float(str(said["seconds"]))
        worker.running = float(str(said["running"]))
        worker.done, worker.error = bool(said.get("done")), str(said.get("error", ""))

    def closed(self, rank: int) -> None:
        """Take note that the connection of a process is closed."""
        self._workers[rank].closed = True

    @property
    def all_done(self) -> bool:
        """Whether all have said so."""
        return all(worker.done for worker in self._workers.values())

    def slow(self) -> list[str]:
        """Return a sentence for each straggler that is new; call it once for each report."""
        found = self._stragglers()
        said = []
        for rank, worker in self._workers.items():
            worker.slow = worker.slow + 1 if rank in found else 0
            if worker.slow == SLOW_REPORTS:
                takes = max(worker.seconds, worker.running)
                said.append(
                    f"{worker} is slow: step {worker.step} takes it {takes:.2f} s, and "
                    f"the others {found[rank]:.2f} s (median): look there for other programs, a "
                    "slow disk or a hot GPU (top, nvidia-smi), or leave the node out (--exclude)"
                )
        return said

    def end(self, now: float) -> End | None:
        """Return why the run can't go on; None: it can. What is surest comes first."""
        ends = [_end(worker, now) for worker in self._workers.values()]
        ends += [_stuck(self._workers[rank], self._patience) for rank in self._stragglers()]
        return min(filter(None, ends), default=None)

    def _stragglers(self) -> dict[int, float]:
        return stragglers(
            {rank: max(one.seconds, one.running) for rank, one in self._workers.items()}
        )


def _end(worker: Worker, now: float) -> End | None:
    if worker.done:
        return None
    if worker.error:
        return End(2, f"{worker} has failed in step {worker.step}: {worker.error}", FAILED)
    if worker.closed:
        why = (
            f"{worker} has ended in step {worker.step} without a word: something killed it, such "
            "as a lack of memory (muster-job JOB), or its node stopped (sinfo -R)"
        )
        return End(0, why, LOST)
    silent = now - worker.heard
    if silent > SILENT_SECONDS:
        why = (
            f"{worker} is silent since step {worker.step}, for {silent:.0f} s: its node or its "
            "network is down (sinfo -R), or the process is stopped"
        )
        return End(1, why, LOST)
    return None


def _stuck(worker: Worker, patience: float) -> End | None:
    """Return the end of a straggler that is in one step for too long."""
    if worker.done or worker.error or worker.running <= patience:
        return None
    why = (
        f"{worker} is stuck in step {worker.step} for {worker.running:.0f} s, and the others wait: "
        "look at its disk, its file server and its GPU (dmesg, nvidia-smi)"
    )
    return End(1, why, LOST)
