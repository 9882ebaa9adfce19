# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this node and their MIG instances, as nvidia-smi and the driver have them.

Sources: nvidia-smi(1), and the chapters "Getting Started with MIG" and "Device Nodes and
Capabilities" of NVIDIA's Multi-Instance GPU User Guide.
"""

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

COMMAND_S = 60
"""For one command; one that resets a GPU takes ten."""

# `|   0  MIG 1g.10gb          19        7          4:1     |`: name, instance, where it begins.
_INSTANCE = re.compile(r"^\|\s+\d+\s+MIG (\S+)\s+\d+\s+(\d+)\s+(\d+):\d+\s+\|$", re.MULTILINE)
_NONE = ("No GPU instances found", "No MIG-enabled devices found")


class MigError(Exception):
    """What went wrong, as a sentence with its remedy."""


@dataclass(frozen=True)
class Instance:
    """A GPU instance with its one compute instance."""

    profile: str
    number: int
    start: int
    """Where on the GPU it begins: the order of instances that are alike."""


@dataclass(frozen=True)
class Card:
    """A GPU."""

    bus: str
    """Its PCI address, which nvidia-smi takes."""
    minor: int
    """Number of its device file."""
    cut: bool
    """Whether MIG is on."""
    instances: tuple[Instance, ...] = ()

    def folder(self, instance: Instance) -> str:
        """Return where the driver keeps the capabilities of an instance, below the root."""
        return f"proc/driver/nvidia/capabilities/gpu{self.minor}/mig/gi{instance.number}"


class Driver:
    """Reads and changes the driver's state."""

    def __init__(
        self,
        root: str = "/",
        run: "Callable[..., subprocess.CompletedProcess[str]]" = subprocess.run,
    ) -> None:
        """Take the root folder and what runs a command; the defaults are the real ones."""
        self.root = root
        self._run = run

    def cards(self) -> list[Card]:
        """Return all GPUs with their instances."""
        query = ["nvidia-smi", "--query-gpu=pci.bus_id,mig.mode.current", "--format=csv,noheader"]
        status, text = self.command(query)
        rows = [line.split(", ") for line in text.splitlines()]
        if status != 0 or not rows or any(len(row) != 2 for row in rows):
            raise MigError(f"nvidia-smi lists no GPUs ({_end(text)}): fix the driver first")
        return [self._card(bus, mode == "Enabled") for bus, mode in rows]

    def _card(self, bus: str, cut: bool) -> Card:
        return Card(bus, self._minor(bus), cut, self._instances(bus) if cut else ())

    def _minor(self, bus: str) -> int:
        # nvidia-smi prints eight digits of the domain, the driver four (pci.bus_id, NVML).
        path = f"proc/driver/nvidia/gpus/{bus[-12:].lower()}/information"
        match = re.search(r"^Device Minor:\s*(\d+)", self.read(path), re.MULTILINE)
        if not match:
            raise MigError(f"/{path} names no device file: fix the driver first")
        return int(match[1])

    def _instances(self, bus: str) -> tuple[Instance, ...]:
        status, text = self.command(["nvidia-smi", "mig", "-i", bus, "-lgi"])
        if any(words in text for words in _NONE):
            return ()
        if status != 0:
            raise MigError(f"nvidia-smi can't list the instances of {bus}: {_end(text)}")
        instances = [
            Instance(name, int(number), int(start))
            for name, number, start in _INSTANCE.findall(text)
        ]
        return tuple(sorted(instances, key=lambda instance: instance.start))

    def capabilities(self, card: Card, instance: Instance) -> list[str]:
        """Return the device files of an instance, which are made if they are not there."""
        folder = card.folder(instance)
        paths = [f"{folder}/access", f"{folder}/ci0/access"]
        named = [re.search(r"DeviceFileMinor:\s*(\d+)", self.read(path)) for path in paths]
        minors = [match[1] for match in named if match]
        if len(minors) < len(paths):
            raise MigError(
                f"/{folder} has no compute instance: run `systemctl restart muster-nvidia`"
            )
        self.tell(["nvidia-modprobe", *(word for path in paths for word in ("-f", f"/{path}"))])
        return [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors]

    def whole(self, card: Card, instance: Instance) -> bool:
        """Whether an instance has its compute instance, without which no program can use it."""
        return os.path.exists(os.path.join(self.root, card.folder(instance), "ci0/access"))

    def jobs(self) -> int:
        """Return how many job steps of SLURM run here: each has a slurmstepd."""
        names = (
            self.read(f"proc/{pid}/comm")
            for pid in os.listdir(os.path.join(self.root, "proc"))
            if pid.isdecimal()
        )
        return sum(name.strip() == "slurmstepd" for name in names)

    def read(self, path: str) -> str:
        """Return the text of a file below the root; empty if there is none."""
        try:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def tell(self, words: list[str]) -> None:
        """Run a command that must succeed."""
        status, text = self.command(words)
        if status != 0:
            raise MigError(f"{' '.join(words)} ends with {status}: {_end(text)}")

    def command(self, words: list[str]) -> tuple[int, str]:
        """Return a command's exit status and what it said."""
        try:
            done = self._run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=COMMAND_S,
                env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                check=False,
            )
        except FileNotFoundError:
            raise MigError(f"{words[0]} is not installed: run site.yml on this node") from None
        except subprocess.TimeoutExpired:
            raise MigError(f"{' '.join(words)} hangs: reboot the node") from None
        return done.returncode, done.stdout


def _end(text: str) -> str:
    """Return what a command said in one line."""
    return " ".join(text.split())[-200:] or "it said nothing"
