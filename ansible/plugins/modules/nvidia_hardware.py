#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Report what a machine's NVIDIA packages depend on. Changes nothing."""

import glob
import os
import re
from collections.abc import Iterable, Iterator

DOCUMENTATION = r"""
module: nvidia_hardware
short_description: Report a machine's kernel, NVIDIA GPUs and NVSwitches, and who uses them
description:
  - Reads the kernel's lists of PCI devices and processes, so it works before any package is
    installed.
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Look at the machine
  muster.slurm.nvidia_hardware:
"""

RETURN = r"""
kernel:
  description: The kernel that runs.
  type: str
  sample: 6.1.0-40-cloud-amd64
  returned: always
flavour:
  description: Its kind, as the packages that follow new kernels are named by it.
  type: str
  sample: cloud-amd64
  returned: always
gpus:
  description: How many GPUs of NVIDIA's there are.
  type: int
  returned: always
nvswitches:
  description: How many NVSwitches there are.
  type: int
  returned: always
users:
  description: The processes that use GPUs, except daemons that look after them.
  type: list
  elements: str
  sample: [python (4711)]
  returned: always
jobs:
  description: How many steps of SLURM jobs run, whether they use GPUs or not.
  type: int
  returned: always
"""

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # with and without a display
NVSWITCH_CLASS = "0x0680"  # a bridge of no other kind

# Daemons and tools of the driver, as the kernel cuts their names (15 characters). A change of the
# driver ends none of their work.
CARETAKERS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter", "nvidia-smi")


Process = tuple[str, str, list[str]]
"""Number, name and open files of a process."""


def flavour_of(kernel: str) -> str:
    """Return what follows version and build in a kernel's name.

    6.1.0-40-cloud-amd64, 6.12.43+deb13-amd64, 6.8.0-1014-gcp.
    """
    return re.sub(r"^[0-9][^-]*-(?:[0-9.]+-)?", "", kernel)


def counted(devices: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return how many GPUs and NVSwitches are among (vendor, class) of the PCI devices."""
    classes = [kind[:6] for vendor, kind in devices if vendor == NVIDIA]
    gpus = sum(kind in GPU_CLASSES for kind in classes)
    return {"gpus": gpus, "nvswitches": classes.count(NVSWITCH_CLASS)}


def using(processes: Iterable[Process]) -> list[str]:
    """Return who of the processes uses GPUs, as "name (pid)"."""
    return [
        f"{name} ({pid})"
        for pid, name, files in processes
        if name not in CARETAKERS and any(file.startswith("/dev/nvidia") for file in files)
    ]


def steps(processes: Iterable[Process]) -> int:
    """Return how many of the processes look after a step of a job."""
    return sum(name == "slurmstepd" for _, name, _ in processes)


def link(path: str) -> str:
    """Return where a link leads; empty if it has gone meanwhile."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def processes() -> Iterator[Process]:
    """Yield each process of this machine."""
    for folder in glob.glob("/proc/[0-9]*"):
        files = [link(path) for path in glob.glob(f"{folder}/fd/*")]
        yield os.path.basename(folder), attribute(folder, "comm"), files


def attribute(folder: str, name: str) -> str:
    """Return the text of a file of /sys or /proc; empty if it has gone meanwhile."""
    try:
        with open(f"{folder}/{name}", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def main() -> None:
    """Run the module."""
    # Here: `make gpu-check` uses what is above on machines without Ansible.
    from ansible.module_utils.basic import AnsibleModule  # noqa: PLC0415

    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    devices = [
        (attribute(device, "vendor"), attribute(device, "class"))
        for device in glob.glob("/sys/bus/pci/devices/*")
    ]
    kernel = os.uname().release
    running = list(processes())
    module.exit_json(
        changed=False,
        kernel=kernel,
        flavour=flavour_of(kernel),
        users=using(running),
        jobs=steps(running),
        **counted(devices),
    )


if __name__ == "__main__":
    main()
