"""The client of slurmctld, by scontrol and squeue: reads nodes and the queue, releases nodes.

One `scontrol show node` costs a fifth of the CPU of any sinfo (10,000 nodes: 0.05 s to 0.25 s),
which folds hostlists that we would expand again. It also has nodes that are in no partition.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from muster.autoscaler.reconcile.model import SEPARATOR, Node, Power
from muster.catalog.hostlists import expand, fold
from muster.catalog.printable import one_line

REASON_CHARACTERS = 200
"""Longest reason: the accounting database stores 255 bytes of it."""

# Fields of squeue; none that users write as they like: a job's name may have line breaks.
_QUEUE = "%A|%i|%T|%r|%S|%u|%P|%D|%N|%n"
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}
"""Times as seconds, by strftime(3): other formats have no time zone, and some no day.
https://slurm.schedmd.com/squeue.html#OPT_SLURM_TIME_FORMAT"""

_REASON = re.compile(rb" Reason=(.*?) \[([^\s\[\]]+)@[^\s\]]+\]")
"""Such as ` Reason=muster: no room [slurm@2026-11-22T01:04:02]`."""
SLURM_USER = b"slurm"
"""SlurmUser (`muster.render.slurm`), by whose name slurmctld and the daemon set reasons."""
_PARTITION = re.compile(r"PartitionName=(\S+) .* Nodes=(\S+)")


class SlurmError(Exception):
    """slurmctld refused or did not answer; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A job that is pending or running."""

    id: int
    shown: str
    """As squeue shows it: `12_[3-9%2]` are the pending tasks of an array."""
    state: str
    """`PENDING`, `CONFIGURING`, `RUNNING`...; https://slurm.schedmd.com/job_state_codes.html"""
    reason: str
    """Why it is pending: https://slurm.schedmd.com/job_reason_codes.html"""
    start: float
    """When it started, or is expected or asked to start (--begin); 0: unknown."""
    user: str
    partition: str
    """Or several: `debug,gpu`."""
    count: int
    """How many nodes it has or asks for."""
    nodes: tuple[str, ...]
    """The nodes that it has."""
    asked: tuple[str, ...]
    """The nodes that it asks for by name."""


class Slurm:
    """Reads from and commands slurmctld; each call is one process with a timeout."""

    def __init__(self, programs: Path = Path("/usr/bin"), timeout_s: float = 30) -> None:
        self.programs = programs
        self.timeout_s = timeout_s

    def nodes(self) -> list[Node]:
        """Return the nodes in the cloud, also those that are powered down.

        Up to 22.05 SLURM shows those only with PrivateData=cloud, which muster.render.slurm sets.

        Raises:
            SlurmError: they can't be read.

        """
        nodes = []
        for line in self._run("scontrol", "--oneliner", "show", "node").splitlines():
            # Nothing before the state can be written by a user; comments after it can.
            begin = line.find(b" State=")
            end = line.find(b" ", begin + 7)
            if begin < 0 or b"+CLOUD" not in line[begin:end]:
                continue
            name = line[len(b"NodeName=") : line.index(b" ")].decode()
            states = _state(line[begin + 7 : end])
            reason, by_hand = _reason(line, end)
            nodes.append(Node(name, *states, reason, by_hand))
        return nodes

    def release_nodes(self, names: Iterable[str], reason: str, *, in_service: bool) -> None:
        """Take nodes out of their jobs and power them down, with a reason.

        Their jobs are queued again. SLURM runs SuspendProgram for the nodes, and after
        SuspendTimeout they are idle and may be tried again. Nodes in service are set DOWN before:
        else SLURM waits for their slurmd, which may be gone, until SlurmdTimeout is over, before it
        queues their jobs. If the daemon ends between the two calls, the next one finds the nodes
        DOWN with a reason of Muster's, and releases them; those that do not respond, by the same
        rules as before.

        Raises:
            SlurmError: slurmctld refused, or knows only some of the nodes.

        """
        # The reason has text from Google and from the VM: make it one line, and one reason.
        text = " ".join(f"muster: {one_line(reason)}".split()).replace(SEPARATOR, ": ")
        text = text[:REASON_CHARACTERS].rstrip()
        nodes = f"nodename={fold(names)}"
        for state in ("down", "power_down_force") if in_service else ("power_down_force",):
            self._run("scontrol", "update", nodes, f"state={state}", f"reason={text}")

    def queue(self) -> list[Queued]:
        """Return the jobs that are pending or running.

        Raises:
            SlurmError: they can't be read.

        """
        jobs = []
        words = ("squeue", "--all", "--noheader", f"--format={_QUEUE}")
        for line in self._run(*words, environment=_EPOCH).splitlines():
            job, shown, state, reason, start, user, partition, count, nodes, asked = line.decode(
                errors="replace"
            ).split("|")
            jobs.append(
                Queued(
                    int(job),
                    shown,
                    state,
                    reason,
                    # `N/A`: it has none.
                    float(start) if start.isdecimal() else 0,
                    user,
                    partition,
                    int(count),
                    _names(nodes),
                    _names(asked),
                )
            )
        return jobs

    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each partition, also those outside the cloud.

        Raises:
            SlurmError: they can't be read.

        """
        shown = self._run("scontrol", "--all", "--oneliner", "show", "partition").decode()
        matches = (_PARTITION.match(line) for line in shown.splitlines())
        return {match[1]: _names(match[2].replace("(null)", "")) for match in matches if match}

    def _run(
        self, program: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> bytes:
        command = " ".join([program, *words])
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
                f"{command}: no answer in {self.timeout_s:g} s; look at slurmctld"
            ) from error
        except OSError as error:
            raise SlurmError(f"{command}: {error}; run site.yml") from error
        if done.returncode:
            message = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
            raise SlurmError(f"{command}: {message} (exit status {done.returncode})")
        return done.stdout


def _names(hostlist: str) -> tuple[str, ...]:
    return tuple(expand(hostlist)) if hostlist else ()


@lru_cache(maxsize=512)  # thousands of nodes are in a few states
def _state(text: bytes) -> tuple[Power, bool, bool, bool, bool, bool, bool]:
    """Parse a state such as `MIXED+CLOUD+NOT_RESPONDING+POWERING_UP`.

    Returns power, down, drained, not_responding, busy, leaving, invalid. The flags are those of
    node_state_flags in SLURM's src/common/slurm_protocol_defs.c. POWER_UP and POWER_DOWN mean that
    it is asked for and has not begun.
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


def _reason(line: bytes, begin: int) -> tuple[str, bool]:
    """Return the reason, and whether another user than SlurmUser set it.

    User and time are after it, and comments of users may follow.
    """
    at = line.find(b" Reason=", begin)
    match = _REASON.match(line, at) if at >= 0 else None
    if match is None:
        return "", False
    return match[1].decode(errors="replace"), match[2] != SLURM_USER
