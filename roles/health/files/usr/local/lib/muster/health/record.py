# SPDX-License-Identifier: Apache-2.0
"""A node as SLURM has it, and what is done to it; pure.

A node is drained with a reason that begins with PREFIX, and only such a drain is ever lifted. Other
parts of Muster have their own reasons, which begin with `muster: ` too.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from .findings import BROKEN, UNCHECKED, Finding, one_line

PREFIX = "muster: health: "
"""Beginning of this program's reasons."""
REASON_CHARACTERS = 200
"""Longest reason: the accounting database keeps 255 bytes of it."""

WELL = "muster: well again"
"""Takes the place of such a reason: without accounting SLURM 24.11 keeps it at a resume, and would
drain the node with it the next time, for whatever reason."""

LEAVING = {
    *("POWER_DOWN", "POWERING_DOWN", "POWERED_DOWN"),
    *("REBOOT_REQUESTED", "REBOOT_ISSUED"),
}
"""Flags of a node that is going away; node_state_flags in SLURM's slurm_protocol_defs.c."""
HELD = {"DOWN", "DRAIN", "FAIL"}
"""Flags of a node that takes no jobs until somebody says so."""
SILENT = "Not responding"
"""slurmctld's reason for a node that did not answer, which it overwrites itself."""

_REASON = re.compile(r" Reason=(.*?) \[[^\s\[\]]+@[^\s\]]+\]")
"""Such as ` Reason=muster: no room [slurm@2026-11-22T01:04:02]`; users' comments may follow."""
# `gpu:rtx4080:4(S:0-1)`: name, type if there is one, count, sockets.
_GPUS = re.compile(r"(?:^|,)gpu(?::[^,:(]+)?:(\d+)(?=[,(]|$)")


class Record(NamedTuple):
    """What `scontrol --oneliner show node` says of one node."""

    flags: frozenset[str]
    """Its state's words, such as IDLE and DRAIN."""
    reason: str
    gpus: int


def parse(text: str) -> Record | None:
    """Return the record; None where the text is none."""
    line = text.strip()
    match = re.match(r"NodeName=\S+ .*? State=(\S+)", line)
    if not match:
        return None
    gres = re.search(r" Gres=(\S+)", line)
    reason = _REASON.search(line, match.end())
    return Record(
        # `IDLE*+DRAIN`: the mark says that it does not answer.
        frozenset(re.findall(r"[A-Z_]+", match[1])),
        reason[1] if reason else "",
        sum(map(int, _GPUS.findall(gres[1]))) if gres else 0,
    )


def reason(findings: Iterable[Finding]) -> str:
    """Return why the node can't work; empty if nothing is broken."""
    broken = [f"{finding.check}: {finding.why}" for finding in findings if finding.state == BROKEN]
    return one_line(PREFIX + "; ".join(broken), REASON_CHARACTERS) if broken else ""


def plan(record: Record, findings: Collection[Finding]) -> list[str]:
    """Return the words of `scontrol update` that bring the node where it belongs.

    None if it is there. A drain is lifted when what it was for has been looked at and is well.
    """
    ours = record.reason.startswith(PREFIX)
    held = bool(record.flags & HELD)
    theirs = held and not ours and not record.reason.startswith(SILENT)
    if theirs or record.flags & LEAVING:
        return []
    why = reason(findings)
    drained = "DRAIN" in record.flags
    if why:
        # slurmctld of later releases may have added to it.
        told = drained and record.reason.startswith(why)
        return [] if told else ["state=drain", f"reason={why}"]
    if not (drained and ours):
        return []
    unknown = [finding.check for finding in findings if finding.state == UNCHECKED]
    # `storage` is each `storage /PATH`: which ones there are is not known then.
    if any(f"{check}{end}" in record.reason for check in unknown for end in (": ", " /")):
        return []
    # Not `undrain`: a node that was switched off meanwhile would stay down (ReturnToService=1).
    return ["state=resume", f"reason={WELL}"]
