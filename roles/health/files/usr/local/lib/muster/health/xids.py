# SPDX-License-Identifier: Apache-2.0
"""What the NVIDIA driver wrote into the kernel log since boot: its Xid errors; pure.

What a number means: https://docs.nvidia.com/deploy/xid-errors/. A fatal one counts until the next
boot, whatever the GPU says of itself now.
"""

import re
from collections.abc import Mapping

from .findings import BROKEN, HEALTHY, UNCHECKED, Finding, Reading, unchecked

COMMANDS = {
    "xids": [
        *("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager", "--quiet"),
        "--grep=NVRM: Xid",
    ],
    # Whether there is a kernel log at all: without one nothing is found in it.
    "kernel": [
        *("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager", "--quiet"),
        "--lines=1",
    ],
}
CHECK = "kernel log"

FATAL = {
    48: "uncorrectable memory error",
    62: "halt of the GPU's own controller",
    63: "memory to be replaced at the next reset",
    64: "memory that could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the GPU's own controller does not answer",
    120: "error of the GPU's own controller",
}
OF_USERS = {13, 31, 43, 45}
"""Faults of programs, which end with them: bad memory accesses, and what follows from them."""

# The message begins with it, so no program's name that the kernel prints is taken for one.
_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)\b")


def finding(readings: Mapping[str, Reading]) -> Finding:
    """Return what the kernel log says."""
    xids, kernel = readings["xids"], readings["kernel"]
    # Without a match it ends with 1 and prints nothing.
    if xids.status is None or (xids.status and xids.text.strip()):
        return unchecked(CHECK, xids, "journalctl")
    lines = [line for line in xids.text.splitlines() if line.startswith("NVRM: Xid")]
    matches = [match for match in map(_LINE.match, lines) if match]
    fatal = {(match[1], int(match[2])): None for match in matches if int(match[2]) in FATAL}
    if fatal:
        said = ", ".join(f"Xid {number} of {gpu} ({FATAL[number]})" for gpu, number in fatal)
        return Finding(CHECK, BROKEN, f"{said} since boot; reboot the node")
    if len(matches) < len(lines):
        return Finding(CHECK, UNCHECKED, f"it has Xid lines of an unknown form: {lines[-1][:60]}")
    if kernel.status != 0 or not kernel.text.strip():
        return Finding(CHECK, UNCHECKED, "the journal has no kernel log of this boot")
    others = sorted({int(match[2]) for match in matches})
    if not others:
        return Finding(CHECK, HEALTHY, "no Xid since boot")
    whose = " of programs" if OF_USERS.issuperset(others) else ""
    seen = ", ".join(map(str, others))
    return Finding(CHECK, HEALTHY, f"no fatal Xid since boot; others{whose}: {seen}")
