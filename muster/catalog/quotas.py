"""Which of Google's quotas VMs count for; pure.

https://cloud.google.com/compute/resource-usage
"""

from collections.abc import Container

from muster.catalog import accelerators

# These machine series share one quota, others have their own.
_SHARED_CPUS = ("e2", "f1", "g1", "n1")
ALL_REGIONS = "CPUS_ALL_REGIONS"
GPUS_ALL_REGIONS = "GPUS_ALL_REGIONS"
INSTANCES = "INSTANCES"
_SPOT = "PREEMPTIBLE_"
LOCAL_SSDS, SPOT_LOCAL_SSDS = "LOCAL_SSD_TOTAL_GB", "PREEMPTIBLE_LOCAL_SSD_GB"
GPU_METRICS = {
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
}
"""Type of GPU -> regional metric; H100 have none."""


def counts(metric: str, limit: float) -> bool:
    """Whether a listed metric is a quota: one for spot VMs with limit 0 does not apply."""
    return limit > 0 or not metric.startswith(_SPOT)


def amounts(
    machine_type: str, known: Container[str], *, spot: bool = False, gpus: str = ""
) -> dict[str, int]:
    """Return how much of each metric a VM uses, without its disks and addresses.

    `gpus`: those that are attached to it, as muster.catalog.accelerators writes them.
    """
    shape = accelerators.machine(machine_type, gpus)
    cpus = shape.cpus if shape else 1
    amount_by_metric = {
        INSTANCES: 1,
        ALL_REGIONS: cpus,
        cpu_metric(machine_type, known, spot=spot): cpus,
    }
    if shape and shape.gpus:
        amount_by_metric[GPUS_ALL_REGIONS] = shape.gpus
        if metric := GPU_METRICS.get(shape.gpu_type):
            amount_by_metric[_metric(metric, known, spot=spot)] = shape.gpus
    return amount_by_metric


def cpu_metric(machine_type: str, known: Container[str], *, spot: bool = False) -> str:
    """Return the regional metric that the CPUs of a VM count for.

    Spot VMs count as PREEMPTIBLE_CPUS where the project has such a quota (`known` has it), else as
    all others: https://cloud.google.com/compute/docs/instances/spot#quotas
    """
    series = machine_type.partition("-")[0]
    if spot and f"{_SPOT}CPUS" in known:
        return f"{_SPOT}CPUS"
    return "CPUS" if series in _SHARED_CPUS else f"{series.upper()}_CPUS"


def local_ssd_metric(known: Container[str], *, spot: bool = False) -> str:
    """Return the regional metric that the local SSDs of a VM count for, in GiB."""
    return SPOT_LOCAL_SSDS if spot and SPOT_LOCAL_SSDS in known else LOCAL_SSDS


def _metric(metric: str, known: Container[str], *, spot: bool) -> str:
    spot_metric = f"{_SPOT}{metric}"
    return spot_metric if spot and spot_metric in known else metric
