# SPDX-License-Identifier: Apache-2.0
"""Whether the GPUs that SLURM counts on are there and sound, as nvidia-smi has it; pure.

Its exit codes: nvidia-smi(1), RETURN VALUE, and nvmlReturn_t in NVIDIA's NVML API. Its options:
`nvidia-smi --help-query-gpu` and `--help-query-remapped-rows`.
"""

import re
from collections.abc import Iterator, Mapping

from .findings import BROKEN, HEALTHY, UNCHECKED, Finding, Reading, one_line, unchecked

_FIELDS = (
    *("pci.bus_id", "mig.mode.current"),
    *("ecc.errors.uncorrected.volatile.total", "retired_pages.pending"),
)
COMMANDS = {
    "gpus": ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"],
    # Their instances, where a GPU is cut up (MIG).
    "list": ["nvidia-smi", "--list-gpus"],
    "rows": [
        "nvidia-smi",
        "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure",
        "--format=csv,noheader",
    ],
    "links": ["nvidia-smi", "nvlink", "--status"],
}
FABRIC = {"fabric": ["systemctl", "is-active", "nvidia-fabricmanager.service"]}
"""Asked where NVSwitches are: without the daemon no CUDA program starts."""

GPUS, MEMORY, LINKS, MANAGER = "gpus", "gpu memory", "nvlink", "fabric manager"

_BROKEN = {
    8: "a GPU has not all of its power cables",
    9: "the driver is not loaded; dkms status and modprobe nvidia say why",
    10: "the kernel has trouble with a GPU's interrupts",
    12: "the driver's library libnvidia-ml.so is missing; install the driver again",
    14: "a GPU's infoROM is corrupted",
    15: "a GPU has fallen off the bus; reboot the node",
    16: "a GPU has to be reset; reboot the node",
    18: "driver and library have different versions; reboot the node",
}
_ERRORS, _FAILED = "uncorrectable memory errors", "rows that can't be remapped"
_UNKNOWN = {2, 3, 13}
"""This nvidia-smi or this GPU has no such query."""

# `00000000:3B:00.0, Disabled, 0, No`
_ROW = re.compile(r"[0-9A-Fa-f]+:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d(, [^,]+)+$")
_NOT_APPLICABLE = re.compile(r"\[?(N/A|Not Supported)\]?$")
# `GPU 0000:3B:00.0: GPU is lost.`, of later drivers `GPU0: 0000:3B:00.0: Unknown Error`.
_LOST = re.compile(r"device handle for GPU(?:\d+: )? ?([0-9A-Fa-f]+:[0-9A-Fa-f:.]*[0-9A-Fa-f])")


def findings(expected: int, readings: Mapping[str, Reading]) -> Iterator[Finding]:
    """Yield what is known of the GPUs of a node on which SLURM counts on `expected`."""
    reading = readings["gpus"]
    trouble = _trouble(reading)
    if trouble:
        yield trouble
        for check in (MEMORY, LINKS):
            yield Finding(check, UNCHECKED, "nvidia-smi says nothing of it")
    else:
        rows = _rows(reading.text)
        yield _count(expected, rows, readings["list"])
        yield _memory(rows, readings["rows"])
        yield _links(readings["links"], switches="fabric" in readings)
    if "fabric" in readings:
        yield _manager(readings["fabric"])


def _trouble(reading: Reading) -> Finding | None:
    """Return the finding where nvidia-smi does not list the GPUs; None where it does."""
    if reading.missing or reading.status in _UNKNOWN:
        return unchecked(GPUS, reading, "nvidia-smi")
    if reading.late:
        why = "nvidia-smi does not answer: the driver hangs; reboot the node"
    elif "version mismatch" in reading.text:
        why = _BROKEN[18]
    elif lost := _LOST.search(reading.text):
        why = f"{lost[1]} has fallen off the bus; reboot the node"
    elif reading.status and "No devices were found" not in reading.text:
        said = one_line(reading.text, 60)
        why = _BROKEN.get(reading.status, f"nvidia-smi ends with {reading.status}: {said}")
    elif strange := _strange(reading.text):
        why = f"nvidia-smi prints no list of GPUs: {one_line(strange, 60)}"
    else:
        return None
    return Finding(GPUS, BROKEN, why)


def _strange(text: str) -> str:
    """Return the first line that says nothing of a GPU; empty if there is none."""
    for line in text.splitlines():
        known = line.startswith(("WARNING:", "No devices were found"))
        if line.strip() and not known and not _is_row(line, len(_FIELDS)):
            return line
    return ""


def _is_row(line: str, fields: int) -> bool:
    return bool(_ROW.match(line)) and len(line.split(", ")) == fields


def _rows(text: str) -> list[list[str]]:
    """Return the fields of each GPU."""
    return [line.split(", ") for line in text.splitlines() if _ROW.match(line)]


def _count(expected: int, rows: list[list[str]], listed: Reading) -> Finding:
    cut = sum(mode == "Enabled" for _, mode, *_ in rows)
    if cut and listed.status != 0:
        return unchecked(GPUS, listed, "nvidia-smi --list-gpus")
    instances = len(re.findall(r"^ +MIG ", listed.text, re.MULTILINE)) if cut else 0
    there = len(rows) - cut + instances
    if there < expected:
        why = f"SLURM counts on {expected}, the driver has {there}; reboot the node, then reseat"
        return Finding(GPUS, BROKEN, why)
    return Finding(GPUS, HEALTHY, f"{there} of {expected}")


def _memory(rows: list[list[str]], remapped: Reading) -> Finding:
    """Return what is known of the GPUs' memory: errors, pages and rows to be replaced."""
    told = [
        (gpu, what, value)
        for gpu, _, errors, retiring in rows
        for what, value in ((_ERRORS, errors), ("pages to be retired", retiring))
    ]
    if remapped.status == 0:
        for gpu, pending, failed in (row for row in _rows(remapped.text) if len(row) == 3):
            told += [(gpu, "rows to be remapped", pending), (gpu, _FAILED, failed)]
    told = [entry for entry in told if not _NOT_APPLICABLE.match(entry[2])]
    # Without counts, which grow: they would change the reason each time.
    wrong = [_wrong(*entry) for entry in told if entry[2] not in ("0", "No")]
    if wrong:
        return Finding(MEMORY, BROKEN, ", ".join(wrong))
    if not told:
        return Finding(MEMORY, UNCHECKED, "these GPUs say nothing of their memory (no ECC)")
    if remapped.status != 0:
        return unchecked(MEMORY, remapped, "nvidia-smi --query-remapped-rows")
    return Finding(MEMORY, HEALTHY, "no uncorrectable error, nothing to be replaced")


def _wrong(gpu: str, what: str, value: str) -> str:
    if not value.isdecimal() and value != "Yes":
        return f"{gpu} says {one_line(value, 20)} of {what}"
    remedy = "replace it" if what == _FAILED else "reset it"
    return f"{gpu} has {what}: {remedy}"


def _links(reading: Reading, *, switches: bool) -> Finding:
    if reading.status != 0:
        return unchecked(LINKS, reading, "nvidia-smi nvlink")
    gpu, up = "", 0
    down: dict[str, None] = {}
    for line in reading.text.splitlines():
        if heading := re.match(r"GPU (\d+):", line):
            gpu = heading[1]
        elif re.match(r"\s+Link \d+: <inactive>", line):
            down[gpu] = None
        elif re.match(r"\s+Link \d+: [\d.]+ GB/s", line):
            up += 1
    if down and switches:
        why = f"links of GPU {', '.join(down)} are inactive; reboot the node"
        return Finding(LINKS, BROKEN, why)
    if not up:
        return Finding(LINKS, HEALTHY, "no links")
    # Without switches some links are never connected, and nothing says which.
    return Finding(LINKS, HEALTHY, f"{up} links active")


def _manager(reading: Reading) -> Finding:
    if reading.missing or reading.late:
        return unchecked(MANAGER, reading, "systemctl")
    if reading.status == 0:
        return Finding(MANAGER, HEALTHY, "active")
    why = "nvidia-fabricmanager does not run, and NVSwitches need it; systemctl status says why"
    return Finding(MANAGER, BROKEN, why)
