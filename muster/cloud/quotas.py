"""Which of Google's quotas VMs count for; pure.

https://cloud.google.com/compute/resource-usage
"""

from collections.abc import Container

# These machine series share one quota, others have their own.
_SHARED_CPUS = ("e2", "f1", "g1", "n1")
ALL_REGIONS = "CPUS_ALL_REGIONS"
INSTANCES = "INSTANCES"
_SPOT = "PREEMPTIBLE_CPUS"


def counts(metric: str, limit: float) -> bool:
    """Whether a metric that Google lists is one: without a limit there is no quota for spot VMs."""
    return limit > 0 or metric != _SPOT


def cpu_metric(machine_type: str, known: Container[str], *, spot: bool = False) -> str:
    """Return the regional metric that the CPUs of a VM count for.

    Spot VMs count as PREEMPTIBLE_CPUS where the project has such a quota (`known` has it), else as
    all others: https://cloud.google.com/compute/docs/instances/spot#quotas
    """
    if spot and _SPOT in known:
        return _SPOT
    series = machine_type.partition("-")[0]
    return "CPUS" if series in _SHARED_CPUS else f"{series.upper()}_CPUS"
