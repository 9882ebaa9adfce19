# SPDX-License-Identifier: Apache-2.0
"""Files of systemd units, and which of them a boot starts with the network's file systems."""

import os

from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

UNITS = "/etc/systemd/system"
WANTS = f"{UNITS}/remote-fs.target.wants"


def write_text(path: str, text: str) -> None:
    """Write `text` to `path` in one step."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(f"{path}.new", path)


class File:
    """The file of a unit: its text, the wanted text, and whether a boot should start it."""

    def __init__(self, name: str, after: str, at_boot: bool) -> None:
        self.name = name
        self.path = f"{UNITS}/{name}"
        self.before = read_text(self.path) or ""
        self.after = after
        self.at_boot = at_boot

    def is_enabled(self) -> bool:
        """Whether a boot starts it."""
        return os.path.lexists(f"{WANTS}/{self.name}")
