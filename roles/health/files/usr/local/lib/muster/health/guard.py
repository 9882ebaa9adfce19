# SPDX-License-Identifier: Apache-2.0
"""Whether users of this VM are kept from the metadata server; pure.

It gives the VM's token, and so the cluster's secrets, to everybody who reaches it.
"""

from collections.abc import Mapping

from .findings import BROKEN, HEALTHY, Finding, Reading, one_line, unchecked

CHECK = "metadata server"
RULES = "/etc/muster/guard.nft"
"""Of the role cloud_vm: only VMs of a cluster have it."""
COMMANDS = {CHECK: ["muster-guard", "check"]}


def finding(readings: Mapping[str, Reading]) -> Finding:
    """Return the finding; the program ends with 1 if a user gets through."""
    reading = readings[CHECK]
    if reading.status == 1:
        return Finding(CHECK, BROKEN, "it gives users this VM's token; see muster-guard check")
    if reading.status == 0:
        return Finding(CHECK, HEALTHY, one_line(reading.text))
    return unchecked(CHECK, reading, "muster-guard")
