"""Definition -> variables of the role `nvidia_driver`, on the nodes of a set and in an image."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from muster.catalog.nvidia.additions import Addition, cdi, dcgm
from muster.catalog.nvidia.drivers import Driver, choose, modules_of
from muster.catalog.nvidia.models import Gpu, named
from muster.definition import Definition
from muster.definition.schema.node_sets import VirtualMachines


def _driver(definition: Definition, node_set: str) -> Driver | None:
    cluster = definition.cluster
    gpus, nvidia = cluster.nodes[node_set].gpus, cluster.nvidia
    branch = nvidia.branch_on(cluster.os) if nvidia else None
    if not gpus or not nvidia or branch is None:
        return None
    return choose(cluster.os, nvidia.source, branch, nvidia.modules, named(gpus.type or ""))


def _gpus_of_vms(definition: Definition) -> list[Gpu]:
    """Return the GPUs of VMs, by node set; Google's are all known."""
    types = [
        nodes.gpus.type or ""
        for nodes in definition.cluster.nodes.values()
        if isinstance(nodes, VirtualMachines) and nodes.gpus
    ]
    return [gpu for name in types if (gpu := named(name))]


def _driver_of_vms(definition: Definition) -> Driver | None:
    """Return the driver of all VMs with GPUs, which have one image; None if they need none.

    None too where no driver serves all of them, which the definition's checks refuse.
    """
    cluster = definition.cluster
    nvidia, gpus = cluster.nvidia, _gpus_of_vms(definition)
    branch = nvidia.branch_on(cluster.os) if nvidia else None
    if nvidia is None or branch is None or not gpus:
        return None
    there = modules_of(cluster.os, nvidia.source, branch)
    # NVIDIA's default for the first of them comes first.
    for kind in [kind for kind in gpus[0].modules(branch) if kind in there]:
        if nvidia.modules in (None, kind):
            drivers = [choose(cluster.os, nvidia.source, branch, kind, gpu) for gpu in gpus]
            if all(drivers):
                return drivers[0]
    return None


def variables(definition: Definition, node_set: str) -> dict[str, Any]:
    """Return the role's variables without their prefix; no packages: there is no driver."""
    driver = _driver(definition, node_set)
    gpus = definition.cluster.nodes[node_set].gpus
    own = driver.repository if driver else ""
    return _packages(driver) | {
        "kernel_packages": list(driver.kernel_packages) if driver else [],
        "gpus": gpus.count if gpus else 0,
        "mig": dict(gpus.mig) if gpus else {},
        "additions": [
            asdict(addition)
            | {
                "packages": list(addition.packages),
                # The driver's repository is configured already, for all its packages.
                "repository": addition.repository if addition.repository != own else "",
            }
            for addition in _additions(definition, driver)
        ],
    }


def _additions(definition: Definition, driver: Driver | None) -> Iterator[Addition]:
    cluster = definition.cluster
    if driver is None or cluster.nvidia is None:
        return
    if cluster.nvidia.dcgm and (addition := dcgm(cluster.os, driver.branch)):
        yield addition
    if cluster.nvidia.cdi:
        yield cdi()


def of_image(definition: Definition, flavour: str) -> dict[str, Any]:
    """Return the role's variables, without their prefix, for the VMs' image.

    Modules are built for the newest kernel of this `flavour`, which the image boots: the archive
    removes the headers of the kernel that the builder runs when a newer one comes.
    """
    driver = _driver_of_vms(definition)
    packages = [
        name.replace("{flavour}", flavour)
        for name in (driver.kernel_packages if driver else ())
        if "{kernel}" not in name
    ]
    if any(name.startswith("linux-headers-") for name in packages):
        packages.insert(0, f"linux-image-{flavour}")
    role_variables = _packages(driver) | {"kernel_packages": packages}
    if any(
        isinstance(nodes, VirtualMachines) and nodes.shape and nodes.shape.has_nvswitches
        for nodes in definition.cluster.nodes.values()
    ):
        # The builder has none of the GPUs, so the role finds no NVSwitches there.
        role_variables["packages"] += role_variables["fabric_packages"]
    return role_variables


def _packages(driver: Driver | None) -> dict[str, Any]:
    return {
        "branch": driver.branch if driver else 0,
        "module": driver.module if driver else "",
        "packages": list(driver.packages) if driver else [],
        "fabric_packages": list(driver.fabric_packages) if driver else [],
        "components": list(driver.components) if driver else [],
        "repository": driver.repository if driver else "",
    }
