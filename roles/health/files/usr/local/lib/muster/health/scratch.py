# SPDX-License-Identifier: Apache-2.0
"""Whether jobs can have a folder of their own on this node's disk; pure.

The role `scratch` brings the program that knows where and tries it.
"""

from .findings import BROKEN, HEALTHY, Finding, Reading, one_line, unchecked

PROGRAM = "usr/local/lib/muster/scratch.py"
CHECK = "scratch"
REFUSED = 3
"""The program's exit status where no folder can be made."""


def findings(reading: Reading) -> list[Finding]:
    """Return what the program says; nothing where jobs have no such folder."""
    if reading.late:
        return [Finding(CHECK, BROKEN, "its disk does not answer")]
    said = one_line(reading.text)
    if reading.status == REFUSED:
        return [Finding(CHECK, BROKEN, said)]
    if reading.status != 0:
        return [] if reading.missing else [unchecked(CHECK, reading, "scratch.py")]
    return [Finding(CHECK, HEALTHY, said)] if said else []
