"""Definition -> what the role `nvidia_driver` takes on the nodes of a set."""

from typing import Any

from muster.cluster import Definition
from muster.nvidia.drivers import Driver, choose
from muster.nvidia.models import named


def _driver(definition: Definition, node_set: str) -> Driver | None:
    cluster = definition.cluster
    gpus, nvidia = cluster.nodes[node_set].gpus, cluster.nvidia
    branch = nvidia.branch_on(cluster.os) if nvidia else None
    if not gpus or not nvidia or branch is None:
        return None
    return choose(cluster.os, nvidia.source, branch, nvidia.modules, named(gpus.type or ""))


def variables(definition: Definition, node_set: str) -> dict[str, Any]:
    """Return the role's variables without their prefix; no packages: no driver is to be had."""
    driver = _driver(definition, node_set)
    gpus = definition.cluster.nodes[node_set].gpus
    return {
        "branch": driver.branch if driver else 0,
        "module": driver.module if driver else "",
        "kernel_packages": list(driver.kernel_packages) if driver else [],
        "packages": list(driver.packages) if driver else [],
        "fabric_packages": list(driver.fabric_packages) if driver else [],
        "components": list(driver.components) if driver else [],
        "repository": driver.repository if driver else "",
        "gpus": gpus.count if gpus else 0,
        "mig": dict(gpus.mig) if gpus else {},
    }
