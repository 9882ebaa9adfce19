# SPDX-License-Identifier: Apache-2.0
"""Talks to slurmdbd through sacctmgr, asks slurmctld for jobs, decides with them, runs plans."""

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable

from ansible_collections.muster.slurm.plugins.module_utils.accounting_plan import plan
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    READS,
    State,
    parse,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import (
    Job,
    jobs_without_qos,
    takes_qos_away,
    target,
    unlisted,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

COMMAND_SECONDS = 60
NAMED_IN_A_MESSAGE = 20
"""Jobs, or commands."""
SLURMDBD_CONF = "/etc/slurm/slurmdbd.conf"
REMEDY = "start it there (systemctl status slurmdbd, systemctl status muster-munge) and run again"


class NoAnswerError(RefusedError):
    """What sacctmgr says where slurmdbd does not answer it."""


class Sacctmgr:
    """Talks to one slurmdbd through sacctmgr, and to the slurmctld of its cluster."""

    def __init__(
        self,
        cluster: str,
        host: str,
        port: int,
        timeout_seconds: float,
        run: "Callable[..., subprocess.CompletedProcess[str]]" = subprocess.run,
    ) -> None:
        self.cluster = cluster
        self.host = host
        self.port = port
        self.timeout_seconds = timeout_seconds
        self.run = run

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def is_set_up(self) -> bool:
        """Return whether there should be a slurmdbd; of another host it is not known here."""
        is_installed = shutil.which("sacctmgr") is not None
        return is_installed and (self.host != "localhost" or os.path.exists(SLURMDBD_CONF))

    def _call(self, program: str, *words: str) -> tuple[int, str, str]:
        """Return (exit code, output, errors) of `program` run with its own slurm.conf.

        A database host has no slurm.conf, and a controller has none before its cluster is known.
        """
        path = shutil.which(program)
        if path is None:
            raise NoAnswerError(f"no {program} on this host; install the package slurm-client")
        with tempfile.NamedTemporaryFile("w", prefix="muster-slurm-", suffix=".conf") as conf:
            conf.write(
                f"ClusterName={self.cluster}\nSlurmctldHost=localhost\nAuthType=auth/munge\n"
                "AccountingStorageType=accounting_storage/slurmdbd\n"
                f"AccountingStorageHost={self.host}\nAccountingStoragePort={self.port}\n"
            )
            conf.flush()
            try:
                done = self.run(
                    [path, *words],
                    env={**os.environ, "SLURM_CONF": conf.name, "LC_ALL": "C.UTF-8"},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="backslashreplace",
                    timeout=COMMAND_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return 124, "", f"{program} did not end within {COMMAND_SECONDS} s"
        return done.returncode, done.stdout, done.stderr

    def _read(self, what: str) -> str:
        words = [word.format(cluster=self.cluster) for word in READS[what]]
        code, out, err = self._call("sacctmgr", "-nP", *words)
        # Exit code 0 with an error on stderr is a failure too: it may come with half an answer.
        if code != 0 or "error:" in err:
            raise NoAnswerError(
                one_line(err) or one_line(out) or f"sacctmgr {' '.join(words)}: exit {code}"
            )
        return out

    def first_state(self) -> State:
        """Return the state as soon as slurmdbd answers; refuse after the bound."""
        deadline = time.monotonic() + self.timeout_seconds
        while True:
            try:
                return self.state()
            except NoAnswerError as error:
                if time.monotonic() >= deadline:
                    raise RefusedError(
                        f"slurmdbd on {self.address} did not answer within "
                        f"{self.timeout_seconds} s ({error}); {REMEDY}"
                    ) from error
                time.sleep(min(1, max(0, deadline - time.monotonic())))

    def state(self) -> State:
        """Return what slurmdbd holds of the cluster."""
        return parse(self.cluster, {name: self._read(name) for name in READS})

    def silence(self) -> str | None:
        """Return what sacctmgr says if slurmdbd does not answer (None: it does)."""
        try:
            self._read("clusters")
        except NoAnswerError as error:
            return str(error)
        return None

    def change(self, command: list[str]) -> str | None:
        """Run one command of a plan; return what it said if it failed (None: done)."""
        code, out, err = self._call("sacctmgr", "-i", *command)
        return None if code == 0 else (one_line(err + "\n" + out) or f"exit {code}")

    def jobs(self) -> list[Job]:
        """Return the jobs that wait or run, also those that are held or begin later.

        From slurmctld, whose address slurmdbd knows: sacct leaves a job out that is not eligible
        yet (22.05, 24.11).

        Raises:
            RefusedError: slurmctld does not answer.

        """
        words = ["--all", "--noheader", f"--clusters={self.cluster}", "--format=%i|%a|%u|%q"]
        code, out, err = self._call("squeue", *words)
        if code != 0 or "error:" in err:
            raise RefusedError(
                f"squeue does not say which jobs there are ({one_line(err)}), so nothing is taken "
                "away; start slurmctld and run again"
            )
        rows = [line.split("|") for line in out.splitlines()]
        return [Job(*row) for row in rows if len(row) == len(Job._fields)]


def one_line(text: str) -> str:
    """Return what a command said as one line."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def decide(
    slurmdbd: Sacctmgr, current: State, wish: State, prune: bool, drain: bool = False
) -> tuple[State, frozenset[tuple[str, str]], frozenset[Job]]:
    """Return the State to reach, the (account, user) that have jobs, and the jobs that keep a QoS.

    The last two only if they matter to it.

    Raises:
        RefusedError: jobs could no longer use their QoS, and it is not to be drained.

    """
    goal = target(current, wish, prune)
    removes = prune and any(unlisted(current, wish))
    if not removes and not takes_qos_away(current, goal):
        return goal, frozenset(), frozenset()
    jobs = slurmdbd.jobs()
    busy = frozenset((job.account, job.user) for job in jobs)
    goal = target(current, wish, prune, busy)
    losing = jobs_without_qos(current, goal, jobs)
    if losing and not drain:
        raise RefusedError(
            f"{by_qos(losing, 'would be taken from jobs')}: wait until they have ended, cancel them, or "
            "give them another QoS (scontrol update jobid=... qos=...), and run again; "
            "accounts_drain_qos: true leaves it to these jobs alone"
        )
    draining = frozenset(losing)
    return target(current, wish, prune, busy, draining), busy, draining


def by_qos(jobs: Iterable[Job], what: str) -> str:
    """Return `QoS NAME WHAT NUMBERS` for each QoS of some jobs."""
    numbers: dict[str, list[str]] = {}
    for job in jobs:
        numbers.setdefault(job.qos, []).append(job.number)
    return "; ".join(f"QoS {name} {what} {_some(some)}" for name, some in sorted(numbers.items()))


def _some(names: list[str], separator: str = ", ") -> str:
    """Return numbers of jobs, or commands, as words, of many only the first."""
    more = len(names) - NAMED_IN_A_MESSAGE
    return separator.join(names[:NAMED_IN_A_MESSAGE]) + (f" and {more} more" if more > 0 else "")


def apply(
    slurmdbd: Sacctmgr,
    current: State,
    wish: State,
    prune: bool,
    busy: frozenset[tuple[str, str]],
    *,
    draining: frozenset[Job] = frozenset(),
) -> list[list[str]]:
    """Run the plan until slurmdbd holds the goal; return the commands.

    A second round is for what the first can't see: a user or an account that was on the cluster
    once comes back with its old description or rights.

    Raises:
        RefusedError: after the last round something is still missing, or slurmdbd does not answer
            any more.

    """
    done: list[list[str]] = []
    taken: list[list[str]] = []
    said = []
    for _ in range(2):
        goal = target(current, wish, prune, busy, draining)
        commands = plan(slurmdbd.cluster, current, goal)
        for number, command in enumerate(commands):
            complaint = slurmdbd.change(command)
            if complaint:
                said.append(f"sacctmgr {shlex.join(command)}: {complaint}")
                # Each further command would wait for its bound.
                if silence := slurmdbd.silence():
                    raise _broken_off(slurmdbd, silence, taken, commands[number:])
            else:
                taken.append(command)
            done.append(command)
        if not commands:
            return done
        try:
            current = slurmdbd.state()
        except NoAnswerError as error:
            raise _broken_off(slurmdbd, str(error), taken, []) from error
    left = plan(slurmdbd.cluster, current, target(current, wish, prune, busy, draining))
    if left:
        raise RefusedError(
            f"slurmdbd did not take: {'; '.join(map(shlex.join, left))}"
            + (f"; it said: {' | '.join(said)}" if said else " (and gave no reason)")
            + "; what was taken stays, fix the cause and run again"
        )
    return done


def _broken_off(
    slurmdbd: Sacctmgr, said: str, done: list[list[str]], left: list[list[str]]
) -> RefusedError:
    """Return the error of a slurmdbd that answered before, with what it did and did not."""
    before = _some([shlex.join(command) for command in done], "; ") or "nothing"
    after = _some([shlex.join(command) for command in left], "; ")
    return RefusedError(
        f"slurmdbd on {slurmdbd.address} stopped answering ({said}); "
        + (
            f"done: {before}; not done, or not known to be: {after}; "
            if left
            else f"done, but not read again: {before}; "
        )
        + REMEDY
    )
