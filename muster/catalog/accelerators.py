"""GPUs that VMs of Google Compute Engine may have attached: which, how many, and to what.

Written as SLURM writes a gres: `t4:2` is two T4. GPUs that belong to a machine type are not here.

Source: https://cloud.google.com/compute/docs/gpus#n1-gpus, its tables of T4, P4, V100 and P100;
Google's page also lists the zones of each. In us-east1-c, europe-west1-b and europe-west1-d four
P100 go with 64 virtual CPUs only.
"""

from dataclasses import replace
from typing import Literal, get_args

from muster.catalog.machine_types import MachineType, machine_types

Kind = Literal["p4", "p100", "t4", "v100"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_PREFIX = "nvidia-tesla-"
# Kind -> GPUs of a VM -> the most virtual CPUs beside them.
_MOST_CPUS: dict[Kind, dict[int, int]] = {
    "p4": {1: 24, 2: 48, 4: 96},
    "p100": {1: 16, 2: 32, 4: 96},
    "t4": {1: 48, 2: 48, 4: 96},
    "v100": {1: 12, 2: 24, 4: 48, 8: 96},
}


def taken_by(shape: MachineType) -> bool:
    """Return whether a machine type takes any: types of N1, not those with shared cores."""
    return shape.series == "n1"


def most_cpus(kind: Kind) -> dict[int, int]:
    """Return the numbers of GPUs that a VM may have, each with the most virtual CPUs beside it."""
    return _MOST_CPUS[kind]


def written(kind: str, count: int) -> str:
    """Return GPUs in this notation, such as `t4:2`."""
    return f"{kind}:{count}"


def api_name(kind: str) -> str:
    """Return the API's name of a kind."""
    return f"{_PREFIX}{kind}"


def of_api(accelerator_type: str, count: int) -> str:
    """Return GPUs in this notation, from the API's name or link of their type."""
    return written(accelerator_type.rpartition("/")[2].removeprefix(_PREFIX), count)


def machine(name: str, gpus: str = "") -> MachineType | None:
    """Return a machine type by name, with the GPUs that are attached to it; None if unknown."""
    shape = machine_types().get(name)
    if shape is None or not gpus:
        return shape
    kind, _, count = gpus.partition(":")
    return replace(shape, gpus=int(count), gpu_type=api_name(kind))
