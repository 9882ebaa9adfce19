"""slurmctld, as scontrol and squeue reach it: node states, nodes released, the queue.

One `scontrol show node` costs a fifth of the CPU of any sinfo, which compares and folds what we
would unfold (10,000 nodes: 0.05 s to 0.25 s), and it has nodes that are in no partition.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from muster.autoscaler.reconcile.model import Node, Power
from muster.autoscaler.text import one_line
from muster.catalog.hostlists import expand, fold

REASON_CHARACTERS = 200
"""Longest reason: the accounting database keeps 255 bytes of it."""

# What squeue prints of a job; the name comes last, it may hold anything.
_QUEUE = "%A|%i|%T|%r|%S|%u|%P|%D|%N|%n|%j"
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}
"""Times as seconds, by strftime(3): the caller's format may leave out the day, and none has a time
zone. https://slurm.schedmd.com/squeue.html#OPT_SLURM_TIME_FORMAT"""

_REASON = re.compile(rb" Reason=(.*?) \[[^\s\[\]]+@[^\s\]]+\]")
"""Such as ` Reason=muster: no room [slurm@2026-11-22T01:04:02]`."""
_PARTITION = re.compile(r"PartitionName=(\S+) .* Nodes=(\S+)")


class SlurmError(Exception):
    """slurmctld did not do or say what was asked for; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A job that waits or runs."""

    id: int
    shown: str
    """As squeue shows it: `12_[3-9%2]` are the tasks of an array that wait."""
    state: str
    """`PENDING`, `CONFIGURING`, `RUNNING`...; https://slurm.schedmd.com/job_state_codes.html"""
    reason: str
    """Why it waits: https://slurm.schedmd.com/job_reason_codes.html"""
    start: float
    """When it began, or is expected to; before its time to begin has come that. 0: not known."""
    user: str
    partition: str
    """Or several: `debug,gpu`."""
    count: int
    """How many nodes it has or wants."""
    nodes: tuple[str, ...]
    """The nodes that it has."""
    asked: tuple[str, ...]
    """The nodes that it asks for by name."""
    name: str


class Slurm:
    """slurmctld; each call is one process, and all are bounded in time."""

    def __init__(self, programs: Path = Path("/usr/bin"), timeout_s: float = 30) -> None:
        self.programs = programs
        self.timeout_s = timeout_s

    def nodes(self) -> list[Node]:
        """Return the nodes in the cloud, those that are off too.

        Up to 22.05 these are shown only with PrivateData=cloud, which muster.render.slurm sets.

        Raises:
            SlurmError: slurmctld does not say.

        """
        found = []
        for line in self._run("scontrol", "--oneliner", "show", "node").splitlines():
            # Before its state stands nothing that a user could have written, after it his texts.
            begin = line.find(b" State=")
            end = line.find(b" ", begin + 7)
            if begin < 0 or b"+CLOUD" not in line[begin:end]:
                continue
            name = line[len(b"NodeName=") : line.index(b" ")].decode()
            power, down, drained, not_responding, busy, leaving, invalid = _state(
                line[begin + 7 : end]
            )
            reason = _reason(line, end)
            found.append(
                Node(name, power, down, drained, not_responding, busy, leaving, invalid, reason)
            )
        return found

    def release_nodes(self, names: Iterable[str], reason: str) -> None:
        """Take nodes that won't come out of their jobs and power them down, with a reason.

        Their jobs are queued again. SLURM runs SuspendProgram for the nodes, and after
        SuspendTimeout they are idle as before and may be tried again. One call, because nodes that
        are only set down stay so for ever if nobody is left to power them down.

        Raises:
            SlurmError: slurmctld did not take it, or knows only some of the nodes.

        """
        # Of Google's words and a VM's own: whatever is in them, it is one line of text.
        text = " ".join(f"muster: {one_line(reason)}".split())[:REASON_CHARACTERS]
        nodes = f"nodename={fold(names)}"
        self._run("scontrol", "update", nodes, "state=power_down_force", f"reason={text}")

    def queue(self) -> list[Queued]:
        """Return the jobs that wait or run.

        Raises:
            SlurmError: slurmctld does not say.

        """
        found = []
        words = ("squeue", "--all", "--noheader", f"--format={_QUEUE}")
        for line in self._run(*words, environment=_EPOCH).splitlines():
            job, shown, state, reason, start, user, partition, count, nodes, asked, name = (
                line.decode(errors="replace").split("|", _QUEUE.count("|"))
            )
            found.append(
                Queued(
                    int(job),
                    shown,
                    state,
                    reason,
                    # `N/A` where there is none.
                    float(start) if start.isdecimal() else 0,
                    user,
                    partition,
                    int(count),
                    _names(nodes),
                    _names(asked),
                    name,
                )
            )
        return found

    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each partition, those that stand there too.

        Raises:
            SlurmError: slurmctld does not say.

        """
        shown = self._run("scontrol", "--all", "--oneliner", "show", "partition").decode()
        found = (_PARTITION.match(line) for line in shown.splitlines())
        return {each[1]: _names(each[2].replace("(null)", "")) for each in found if each}

    def _run(
        self, program: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> bytes:
        called = " ".join([program, *words])
        try:
            done = subprocess.run(
                [self.programs / program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_s,
                env={**os.environ, **(environment or {})},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmError(
                f"{called}: no answer in {self.timeout_s:g} s; look at slurmctld"
            ) from error
        except OSError as error:
            raise SlurmError(f"{called}: {error}; run site.yml") from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
            raise SlurmError(f"{called}: {said} (exit status {done.returncode})")
        return done.stdout


def _names(hostlist: str) -> tuple[str, ...]:
    return tuple(expand(hostlist)) if hostlist else ()


@lru_cache(maxsize=512)  # thousands of nodes are in a few states
def _state(text: bytes) -> tuple[Power, bool, bool, bool, bool, bool, bool]:
    """Return what a state such as `MIXED+CLOUD+NOT_RESPONDING+POWERING_UP` says.

    That is power, down, drained, not_responding, busy, leaving, invalid. The words: node_state_flags of
    SLURM's src/common/slurm_protocol_defs.c. POWER_UP and POWER_DOWN are asked for and not begun.
    """
    base, *flags = text.decode().split("+")
    power = Power.UP
    if "POWERING_DOWN" in flags:
        power = Power.POWERING_DOWN
    elif "POWERING_UP" in flags:
        power = Power.POWERING_UP
    elif "POWERED_DOWN" in flags:
        power = Power.OFF
    return (
        power,
        base in ("DOWN", "ERROR") or "FAIL" in flags,
        "DRAIN" in flags,
        "NOT_RESPONDING" in flags,
        base in ("ALLOCATED", "MIXED") or "COMPLETING" in flags,
        "POWER_DOWN" in flags,
        "INVALID_REG" in flags,
    )


def _reason(line: bytes, begin: int) -> str:
    """Return the reason, up to who gave it and when; comments of users may follow."""
    at = line.find(b" Reason=", begin)
    if at < 0:
        return ""
    found = _REASON.match(line, at)
    return found[1].decode(errors="replace") if found else ""
