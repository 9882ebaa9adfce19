# SPDX-License-Identifier: Apache-2.0
"""What a job asks for, from squeue."""

from collections.abc import Mapping
from dataclasses import dataclass

from muster_jobs.records import Run, output, pairs
from muster_jobs.units import seconds, size

_WIDTHS = {"Account": 256, "QOS": 256, "TimeLimit": 32, "tres-alloc": 1024}
"""Fields by their width: none of them can be longer."""
_FORMAT = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())
COMMAND = ["/usr/bin/squeue", "--noheader", f"--Format={_FORMAT}"]


@dataclass(frozen=True)
class Asks:
    """What a job asks for, and for whom."""

    account: str
    qos: str
    minutes: float
    """Its time limit; 0: it has none, or it is not known."""
    tres: Mapping[str, float]
    """Trackable resource, as cpu or gres/gpu -> how much, memory in MiB; empty: not known."""

    def amount(self, tres: str) -> "float | None":
        """Return how much it asks for of a resource; None where that is not known."""
        return self.tres.get(tres, 0) if self.tres else None


def of_job(job: str, run: Run) -> Asks:
    """Return what a job asks for; of an array what each task does.

    Raises:
        NotKnownError: squeue failed.

    """
    lines = output([*COMMAND, f"--jobs={job}"], run).splitlines()
    found, rest = [], lines[0] if lines else ""
    for width in _WIDTHS.values():
        found.append(rest[:width].strip())
        rest = rest[width:]
    account, qos, limit, tres = found
    return Asks(account, qos, seconds(limit) / 60, _amounts(tres))


def _amounts(text: str) -> Mapping[str, float]:
    """Return the amounts of `cpu=2,mem=2G,node=1`; nothing for N/A."""
    found = {}
    for name, value in pairs(text).items():
        amount = size(value)
        found[name] = amount / 2**20 if name == "mem" else amount
    return found
