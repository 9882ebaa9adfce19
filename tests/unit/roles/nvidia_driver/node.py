"""A node with GPUs: nvidia-smi and nvidia-modprobe, and the files that the driver shows.

What they print is by NVIDIA's Multi-Instance GPU User Guide; no card was asked.
"""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SIZES = {"1g.10gb": (1, (4, 5, 6, 0, 1, 2, 3)), "2g.20gb": (2, (4, 0, 2)), "3g.40gb": (4, (4, 0))}
"""Of an H100 with 80 GB: slices of memory, and where instances begin, the first choice first.

The first choices are those of listings that people have published.
"""


@dataclass
class Gpu:
    """A GPU as the driver has it."""

    bus: str
    minor: int
    cut: bool = False
    stuck: bool = False
    """Whether something keeps it from being reset."""
    instances: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By number: profile, and where it begins."""
    empty: set[int] = field(default_factory=set)
    """Instances without a compute instance."""

    def place(self, profile: str) -> bool:
        """Make an instance at the first free place; say whether there is one."""
        size, starts = SIZES[profile]
        taken = {
            slot for name, at in self.instances.values() for slot in range(at, at + size_of(name))
        }
        for start in starts:
            if taken.isdisjoint(range(start, start + size)):
                self.instances[max(self.instances, default=6) + 1] = (profile, start)
                return True
        return False


def size_of(profile: str) -> int:
    return SIZES[profile][0]


class Node:
    """What the program is run against."""

    def __init__(self, root: Path, *gpus: Gpu) -> None:
        self.root = root
        self.gpus = gpus
        self.said: list[str] = []
        self.broken: dict[str, tuple[int, str]] = {}
        """Commands that begin so end with that status and text."""
        for gpu in gpus:
            name = f"proc/driver/nvidia/gpus/0000:{gpu.bus[9:].lower()}/information"
            self.write(name, f"Model:\t\t NVIDIA H100\nDevice Minor: \t {gpu.minor}\n")
        self.show()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def show(self) -> None:
        """Show the capabilities of what is there, numbered by GPU and instance."""
        for gpu in self.gpus:
            for number in gpu.instances:
                folder = f"proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{number}"
                minor = 3 + gpu.minor * 135 + number * 9
                self.write(f"{folder}/access", f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n")
                if number not in gpu.empty:
                    self.write(f"{folder}/ci0/access", f"DeviceFileMinor: {minor + 1}\n")

    def run(self, words, **_) -> subprocess.CompletedProcess:
        line = " ".join(words)
        self.said.append(line)
        for begin, (status, text) in self.broken.items():
            if line.startswith(begin):
                return subprocess.CompletedProcess(words, status, text)
        status, text = self._answer(words)
        self.show()
        return subprocess.CompletedProcess(words, status, text)

    def _answer(self, words: list[str]) -> tuple[int, str]:  # noqa: PLR0911 - a table
        match words:
            case ["nvidia-smi", "--query-gpu=pci.bus_id,mig.mode.current", *_]:
                modes = {True: "Enabled", False: "Disabled"}
                return 0, "".join(f"{gpu.bus}, {modes[gpu.cut]}\n" for gpu in self.gpus)
            case ["nvidia-smi", "-i", bus, "-mig", on]:
                return self._switch(self._gpu(bus), on == "1")
            case ["nvidia-smi", "mig", "-i", bus, "-lgi"]:
                return self._list(self._gpu(bus))
            case ["nvidia-smi", "mig", "-i", bus, "-dci"]:
                return 0, "Successfully destroyed compute instance ID  0\n"
            case ["nvidia-smi", "mig", "-i", bus, "-dgi"]:
                self._gpu(bus).instances.clear()
                return 0, "Successfully destroyed GPU instance ID  7\n"
            case ["nvidia-smi", "mig", "-i", bus, "-cgi", profiles, "-C"]:
                if all(self._gpu(bus).place(profile) for profile in profiles.split(",")):
                    return 0, "Successfully created GPU instance ID  7\n"
                return 19, "Unable to create a GPU instance: Insufficient Resources\n"
            case ["nvidia-modprobe", "-f", *_]:
                return 0, ""
        raise AssertionError(words)

    def _gpu(self, bus: str) -> Gpu:
        return next(gpu for gpu in self.gpus if gpu.bus == bus)

    def _switch(self, gpu: Gpu, on: bool) -> tuple[int, str]:
        if gpu.stuck:
            return 0, f"Warning: MIG mode is in pending enable state for GPU {gpu.bus}:In use\n"
        gpu.cut = on
        return 0, f"Enabled MIG Mode for GPU {gpu.bus}\nAll done.\n"

    def _list(self, gpu: Gpu) -> tuple[int, str]:
        if not gpu.instances:
            return 6, "No GPU instances found: Not Found\n"
        line = "+" + "-" * 55 + "+\n"
        rows = [
            f"|   0  MIG {name:16} 19       {number:2}          {at}:{size_of(name)}     |\n"
            for number, (name, at) in gpu.instances.items()
        ]
        head = "| GPU   Name             Profile  Instance   Placement  |\n"
        return 0, line + head + line.join(["", *rows, ""])
