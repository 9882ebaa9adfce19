"""The checks of a definition: importing this package registers all of them."""

from muster.cluster.checks import (
    accounts,
    cloud,
    hosts,
    inventory,
    mail,
    names,
    nodes,
    nvidia,
    overrides,
    partitions,
    people,
    reading,
    shape,
    slurm,
    software,
    storage,
)
from muster.cluster.checks.registry import CHECKS, Check, Finding

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "accounts",
    "cloud",
    "hosts",
    "inventory",
    "mail",
    "names",
    "nodes",
    "nvidia",
    "overrides",
    "partitions",
    "people",
    "reading",
    "shape",
    "slurm",
    "software",
    "storage",
]
