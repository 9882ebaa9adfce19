"""The checks of a definition: importing this package registers all of them."""

from muster.cluster.checks import (
    accounts,
    cloud,
    cloudmachines,
    hosts,
    inventory,
    names,
    nodes,
    overrides,
    partitions,
    people,
    reading,
    services,
    shape,
    slurm,
    software,
)
from muster.cluster.checks.registry import CHECKS, Check, Finding

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "accounts",
    "cloud",
    "cloudmachines",
    "hosts",
    "inventory",
    "names",
    "nodes",
    "overrides",
    "partitions",
    "people",
    "reading",
    "services",
    "shape",
    "slurm",
    "software",
]
