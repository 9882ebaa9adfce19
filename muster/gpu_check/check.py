"""Check Muster against the real NVIDIA GPUs of this machine: `make gpu-check`.

Code that other tests run on stand-ins runs here against a driver and its GPUs: the detection of
roles, the table of models, gres.conf, the health check, and a CUDA job. It changes nothing and
needs no SLURM; except for gres.conf it needs only Python's standard library.
"""

import importlib
import importlib.util
import os
import platform
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from muster.catalog.nvidia.models import named

ROOT = Path(__file__).parents[2]
HEALTH_S = 20.0
"""Time limit of a node's check."""
CUDA_S = 120.0
"""The first program on a machine with eight GPUs waits until all are initialised."""
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]


@dataclass(frozen=True)
class Sight:
    """The result of one check."""

    what: str
    state: Literal["healthy", "unchecked", "broken"]
    why: str


@dataclass(frozen=True)
class Machine:
    """The machine to check: the one that this runs on, or another root folder."""

    root: Path = Path("/")
    path: str = os.environ.get("PATH", os.defpath)
    cuda: tuple[str, ...] = (sys.executable, "-m", "muster.gpu_check.cuda_job")

    def devices(self) -> list[str]:
        """Return the device files of GPUs, by their number."""
        files = [path for path in self.root.glob("dev/nvidia*") if path.name[6:].isdecimal()]
        return [f"/dev/{path.name}" for path in sorted(files, key=lambda path: int(path.name[6:]))]

    def pci(self) -> list[tuple[str, str]]:
        """Return vendor and class of each PCI device."""
        return [
            ((device / "vendor").read_text().strip(), (device / "class").read_text().strip())
            for device in self.root.glob("sys/bus/pci/devices/*")
        ]

    def run(self, words: list[str], seconds: float) -> tuple[int | None, str]:
        """Return a command's exit status, None if it has none, and what it printed."""
        try:
            done = subprocess.run(
                words,
                cwd=ROOT,
                env={**os.environ, "PATH": self.path, "LC_ALL": "C"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            return None, f"{words[0]} is not installed"
        except subprocess.TimeoutExpired:
            return None, f"{words[0]} does not answer within {seconds:.0f} s"
        return done.returncode, done.stdout.strip()


def detection() -> Any:
    """Return the Ansible module that examines a host; its functions need no Ansible."""
    file = ROOT / "ansible/plugins/modules/nvidia_hardware.py"
    spec = importlib.util.spec_from_file_location("nvidia_hardware", file)
    assert spec is not None and spec.loader is not None  # noqa: S101 - the file has that form
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sights(machine: Machine) -> Iterator[Sight]:
    """Run all checks, the CUDA job last; yield nothing where there is no GPU."""
    counts = detection().counted(machine.pci())
    devices = machine.devices()
    if not counts["gpus"] and not devices:
        return
    yield _hardware(counts, devices)
    status, text = machine.run(QUERY, HEALTH_S)
    rows = [line.rpartition(", ") for line in text.splitlines()] if status == 0 else []
    if rows:
        yield from (_model(name, version) for name, _, version in rows)
    else:
        yield Sight("driver", "broken", f"it lists no GPU: {text or 'it said nothing'}")
    yield _gres(machine, devices, rows[0][0] if rows else "")
    yield from _health(machine, max(len(devices), 1), switches=bool(counts["nvswitches"]))
    status, text = machine.run([*machine.cuda], CUDA_S)
    for line in text.splitlines() or ["the CUDA job said nothing"]:
        yield Sight("cuda", "healthy" if status == 0 else "broken", line)


def _hardware(counts: dict[str, int], devices: list[str]) -> Sight:
    kernel = platform.release()
    # In a VM or a container either may be hidden, which is no fault.
    said = f"{counts['gpus']} GPUs and {counts['nvswitches']} NVSwitches on the PCI bus"
    files = ", ".join(devices) or "no device file"
    flavour = detection().flavour_of(kernel)
    return Sight("hardware", "healthy", f"{said}; {files}; kernel {kernel} ({flavour})")


def _model(name: str, version: str) -> Sight:
    """Whether the table of models knows the GPU, and has this driver for it."""
    gpu, branch = named(name), int(re.match(r"\d*", version)[0] or 0)  # type: ignore[index]
    if gpu is None:
        return Sight(
            "model", "unchecked", f"{name} is not in Muster's table (muster/catalog/nvidia)"
        )
    if not gpu.known_to(branch):
        return Sight(
            "model", "broken", f"{name} runs with driver {version}, which the table excludes"
        )
    return Sight("model", "healthy", f"{name} is {gpu.name} ({gpu.generation.name}), {version}")


def _gres(machine: Machine, devices: list[str], name: str) -> Sight:
    """Whether the device files that gres.conf would name are there."""
    try:
        from muster.catalog.hostlists import expand, fold  # noqa: PLC0415
        from muster.definition import validate  # noqa: PLC0415 - needs packages: `make setup`
        from muster.render.slurm import render  # noqa: PLC0415
    except ImportError as error:
        return Sight("gres.conf", "unchecked", f"not rendered, {error.name} is missing: make setup")
    gpu = named(name)
    gpus = {"count": max(len(devices), 1), **({"type": gpu.name} if gpu else {})}
    if devices and len(devices) != 1 + int(devices[-1][11:]):
        gpus["devices"] = fold(devices)
    shape = {"sockets": 1, "cores_per_socket": 1, "memory_mib": 1024}
    cluster = {
        "name": "check",
        "os": "debian-12",
        "nodes": {"gpu": {**shape, "gpus": gpus}},
        "partitions": {"main": {"nodes": ["gpu"], "default": True}},
    }
    host = ["localhost-0"]
    groups = {"controller": host, "database": [], "login": host, "compute": host, "gpu": host}
    text = render(validate(cluster, groups)).gres_conf.strip()
    named_files = expand(text.partition("File=")[2])
    lost = [file for file in named_files if not _is_device(machine.root / file.lstrip("/"))]
    if lost:
        return Sight("gres.conf", "broken", f"{text}: {', '.join(lost)} is no device")
    return Sight("gres.conf", "healthy", text.partition(" ")[2])


def _is_device(path: Path) -> bool:
    return path.exists() and stat.S_ISCHR(path.stat().st_mode)


def _health(machine: Machine, count: int, *, switches: bool) -> Iterator[Sight]:
    """Run the health check's own commands, and its verdict on `count` GPUs."""
    sys.path.insert(0, str(ROOT / "roles/health/files/usr/local/lib/muster"))
    commands, gpus, xids = (
        importlib.import_module(f"health.{name}") for name in ("commands", "gpus", "xids")
    )
    asked = gpus.COMMANDS | xids.COMMANDS | (gpus.FABRIC if switches else {})
    with tempfile.TemporaryDirectory() as folder:
        readings = commands.Commands(folder, machine.path).run(asked, HEALTH_S)
    for finding in (*gpus.findings(count, readings), xids.finding(readings)):
        yield Sight(f"health: {finding.check}", finding.state, finding.why)


def main(machine: Machine | None = None) -> int:
    """Print the results; return the exit status."""
    seen = []
    for sight in sights(machine or Machine()):
        print(f"{sight.what:22} {sight.state:10} {sight.why}", flush=True)
        seen.append(sight)
    if not seen:
        print("gpu-check: no NVIDIA GPU is here; run it on a machine that has one", file=sys.stderr)
        return 1
    return 1 if any(sight.state == "broken" for sight in seen) else 0
