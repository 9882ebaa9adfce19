"""Checks of NVIDIA's driver: that it exists, and that the GPUs can use it."""

import math
from collections.abc import Iterator

from muster.catalog.machine_types import MachineType
from muster.catalog.nvidia import Gpu, Source, branches, dcgm, fitting, gpus, modules_of, named
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema.gpus import Gpus, Nvidia
from muster.definition.schema.node_sets import NodeSet, VirtualMachines
from muster.definition.yaml_file import KeyPath


def _branch(d: Definition) -> tuple[Nvidia, int] | None:
    """The wanted driver and its branch, if there is such a driver."""
    nvidia = d.cluster.nvidia
    branch = nvidia.branch_on(d.cluster.os) if nvidia else None
    if nvidia is None or branch not in branches(d.cluster.os, nvidia.source):
        return None
    return nvidia, branch


def _sets(d: Definition) -> Iterator[tuple[KeyPath, Gpus, Gpu | None]]:
    """GPUs of node sets: where their type is said, what they are, and the model if it is known."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus:
            yield _type_of(name, nodes), nodes.gpus, named(nodes.gpus.type or "")


def _type_of(name: str, nodes: NodeSet) -> KeyPath:
    if not isinstance(nodes, VirtualMachines):
        return ("nodes", name, "gpus", "type")
    return ("nodes", name, *(("accelerators", "type") if nodes.accelerators else ("machine_type",)))


def _remedy(d: Definition, gpu: Gpu) -> str:
    """The remedy: the first driver that this GPU and all others can use."""
    for source, branch in _suggested(d) if _drivers(d, gpu) else ():
        return f"say nvidia: {{source: {source}, branch: {branch}}}"
    return f"{d.cluster.os} has none for it: set another os, or leave `nvidia` out and install one"


def _drivers(d: Definition, gpu: Gpu) -> list[tuple[Source, int]]:
    """The sources and branches of all drivers for a GPU."""
    return [(source, driver.branch) for source, driver in fitting(d.cluster.os, gpu)]


def _with_driver(d: Definition) -> dict[str, Gpu]:
    """The GPUs that have a driver, by their type."""
    return {node_gpus.type or "": gpu for _, node_gpus, gpu in _sets(d) if gpu and _drivers(d, gpu)}


def _common(d: Definition) -> list[tuple[Source, int]]:
    """The drivers that know all GPUs, not counting GPUs without any driver."""
    by_gpu = [_drivers(d, gpu) for gpu in _with_driver(d).values()]
    first = by_gpu[0] if by_gpu else []
    return [driver for driver in first if all(driver in others for others in by_gpu)]


def _with_fabric_manager(d: Definition, shape: MachineType) -> list[tuple[Source, int]]:
    """The drivers for a machine type's GPUs that come with a fabric manager."""
    gpu = named(shape.short_gpu_type)
    there = fitting(d.cluster.os, gpu) if gpu else []
    return [(source, driver.branch) for source, driver in there if driver.fabric_packages]


def _switched(d: Definition) -> list[MachineType]:
    """The machine types of VMs that have NVSwitches."""
    virtual_sets = [
        nodes for nodes in d.cluster.nodes.values() if isinstance(nodes, VirtualMachines)
    ]
    return [nodes.shape for nodes in virtual_sets if nodes.shape and nodes.shape.has_nvswitches]


def _suggested(d: Definition) -> list[tuple[Source, int]]:
    """The drivers that all GPUs can use, NVSwitches with them where one driver can."""
    common, shapes = _common(d), _switched(d)
    able = [
        driver
        for driver in common
        if all(driver in _with_fabric_manager(d, shape) for shape in shapes)
    ]
    return able or common


@check("nvidia-without-gpus")
def nvidia_without_gpus(d: Definition) -> Iterator[Finding]:
    """A driver for GPUs, and no node has any."""
    sets = d.cluster.nodes.values()
    virtual_sets = [nodes for nodes in sets if isinstance(nodes, VirtualMachines)]
    # Another check reports an unknown machine type, or one that takes no accelerators.
    unclear = any(nodes.accelerators or not nodes.shape for nodes in virtual_sets)
    if d.cluster.nvidia and not list(_sets(d)) and not unclear:
        yield Finding(
            ("nvidia",),
            "no node set has GPUs",
            "take a machine type with GPUs, such as g2-standard-8, or take `nvidia` out"
            if virtual_sets
            else "say `gpus: {count: ..., type: ...}` for those that have, or take `nvidia` out",
        )


@check("nvidia-source")
def nvidia_source(d: Definition) -> Iterator[Finding]:
    """NVIDIA's repository where Muster takes the distribution's driver only."""
    nvidia = d.cluster.nvidia
    if nvidia and not branches(d.cluster.os, nvidia.source):
        yield Finding(
            ("nvidia", "source"),
            f"on {d.cluster.os} the driver comes from the distribution",
            "take `source` out",
        )


@check("nvidia-branch")
def nvidia_branch(d: Definition) -> Iterator[Finding]:
    """A branch that the source does not have."""
    nvidia = d.cluster.nvidia
    there = branches(d.cluster.os, nvidia.source) if nvidia else []
    if nvidia and there and nvidia.branch not in (None, *there):
        choices = " or ".join(map(str, there))
        others: tuple[Source, ...] = ("distribution", "nvidia")
        has = [source for source in others if nvidia.branch in branches(d.cluster.os, source)]
        where = "NVIDIA's repository" if nvidia.source == "nvidia" else d.cluster.os
        yield Finding(
            ("nvidia", "branch"),
            f"{where} has no driver of branch {nvidia.branch}",
            f"say nvidia: {{source: {has[0]}, branch: {nvidia.branch}}}"
            if has
            else f"say branch: {choices}",
        )


@check("nvidia-modules")
def nvidia_modules(d: Definition) -> Iterator[Finding]:
    """Kernel modules that the branch comes without."""
    if wanted := _branch(d):
        nvidia, branch = wanted
        there = modules_of(d.cluster.os, nvidia.source, branch)
        if nvidia.modules and nvidia.modules not in there:
            yield Finding(
                ("nvidia", "modules"),
                f"branch {branch} of {d.cluster.os} has no {nvidia.modules} modules",
                f"say modules: {' or '.join(there)}, or another branch",
            )


@check("nvidia-gpu-unknown")
def nvidia_gpu_unknown(d: Definition) -> Iterator[Finding]:
    """A GPU of unknown type, and `modules` is not set."""
    nvidia = d.cluster.nvidia
    if nvidia is None or nvidia.modules is not None:
        return
    for path, node_gpus, gpu in _sets(d):
        if gpu is None:
            unknown = f'"{node_gpus.type}" is no GPU that Muster knows'
            yield Finding(
                path,
                f"{unknown if node_gpus.type else 'no type is said'}, so the kernel modules are "
                "not known either",
                f"say the type, such as {_examples()}, or nvidia: {{modules: open}} (cards for "
                "data centers from Turing on, others from branch 560) or {modules: proprietary}",
                because=("nvidia",),
            )


def _examples() -> str:
    return ", ".join(name for name in ("h100", "l4", "rtx4080") if name in gpus())


@check("nvidia-branch-of-all-gpus")
def nvidia_branch_of_all_gpus(d: Definition) -> Iterator[Finding]:
    """GPUs that no single driver knows."""
    there = _with_driver(d)
    if d.cluster.nvidia and there and not _common(d):
        newest = max(there, key=lambda name: there[name].generation.first_branch)
        oldest = min(there, key=lambda name: there[name].generation.last_branch or math.inf)
        yield Finding(
            ("nvidia",),
            f"no driver for {d.cluster.os} knows both {newest} (branch "
            f"{there[newest].generation.first_branch} or newer) and {oldest} "
            f"({there[oldest].generation.last_branch} or older)",
            "put them into separate clusters, or take `nvidia` out and install drivers yourself",
        )


@check("nvidia-branch-of-gpu")
def nvidia_branch_of_gpu(d: Definition) -> Iterator[Finding]:
    """A driver that is too old for a GPU, or too new."""
    wanted, there = _branch(d), _with_driver(d)
    if wanted is None or (there and not _common(d)):
        return
    nvidia, branch = wanted
    for path, node_gpus, gpu in _sets(d):
        if gpu and not gpu.known_to(branch):
            first, last = gpu.generation.first_branch, gpu.generation.last_branch
            span = f"{first} or newer" if branch < first else f"{last} or older"
            whose = f"{d.cluster.os} has" if nvidia.branch is None else "`nvidia` says"
            yield Finding(
                path,
                f"{node_gpus.type} ({gpu.generation.name}) needs a driver of branch {span}, and "
                f"{whose} {branch}",
                _remedy(d, gpu),
                because=("nvidia",),
            )


@check("nvidia-modules-of-gpu")
def nvidia_modules_of_gpu(d: Definition) -> Iterator[Finding]:
    """Kernel modules that a GPU can't use."""
    if wanted := _branch(d):
        nvidia, branch = wanted
        there = modules_of(d.cluster.os, nvidia.source, branch)
        for path, node_gpus, gpu in _sets(d):
            if gpu is None or not gpu.known_to(branch):
                continue
            able = any(kind in there for kind in gpu.modules(branch))
            if nvidia.modules in there and nvidia.modules not in gpu.modules(branch):
                yield Finding(
                    path,
                    f"{node_gpus.type} ({gpu.generation.name}) can't use the {nvidia.modules} "
                    f"modules of branch {branch}",
                    "leave `modules` out" if able else _remedy(d, gpu),
                    because=("nvidia",),
                )


def _for_vms(d: Definition) -> str:
    """The setting of `nvidia` for VMs."""
    if _switched(d):
        for source, branch in _suggested(d):
            return f"nvidia: {{source: {source}, branch: {branch}}}"
    return "nvidia: {}"


@check("vms-without-driver")
def vms_without_driver(d: Definition) -> Iterator[Finding]:
    """VMs with GPUs, and no driver in their image."""
    for name, nodes in d.cluster.nodes.items():
        if isinstance(nodes, VirtualMachines) and nodes.gpus and d.cluster.nvidia is None:
            yield Finding(
                _type_of(name, nodes),
                "its VMs have GPUs, and their image has no driver for them",
                f"say {_for_vms(d)}, which puts it there",
            )


@check("nvidia-fabric-manager")
def nvidia_fabric_manager(d: Definition) -> Iterator[Finding]:
    """VMs with NVSwitches, and a driver that comes without their fabric manager."""
    if wanted := _branch(d):
        for name, nodes in d.cluster.nodes.items():
            shape = nodes.shape if isinstance(nodes, VirtualMachines) else None
            able = _with_fabric_manager(d, shape) if shape and shape.has_nvswitches else []
            if shape and able and (wanted[0].source, wanted[1]) not in able:
                source, branch = next(
                    (driver for driver in _suggested(d) if driver in able), able[0]
                )
                yield Finding(
                    _type_of(name, nodes),
                    f"the GPUs of {shape.name} compute nothing without a fabric manager, which "
                    "this driver comes without",
                    f"say nvidia: {{source: {source}, branch: {branch}}}",
                    because=("nvidia",),
                )


@check("nvidia-dcgm")
def nvidia_dcgm(d: Definition) -> Iterator[Finding]:
    """DCGM for a system that NVIDIA has no packages for."""
    wanted = _branch(d)
    if wanted and wanted[0].dcgm and dcgm(d.cluster.os, wanted[1]) is None:
        yield Finding(
            ("nvidia", "dcgm"),
            f"NVIDIA has no packages of DCGM for {d.cluster.os}",
            "take `dcgm` out, or set another os",
        )


@check("nvidia-of-vms")
def nvidia_of_vms(d: Definition) -> Iterator[Finding]:
    """More than the driver for VMs, whose image has the driver alone."""
    sets = [nodes for nodes in d.cluster.nodes.values() if nodes.gpus]
    if d.cluster.nvidia and any(isinstance(nodes, VirtualMachines) for nodes in sets):
        for name in ("dcgm", "cdi"):
            if getattr(d.cluster.nvidia, name):
                yield Finding(
                    ("nvidia", name),
                    "the image of VMs with GPUs has the driver alone",
                    f"take `{name}` out",
                )
