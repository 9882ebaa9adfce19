"""Checks of NVIDIA's driver: that it exists, and that the GPUs can use it."""

from collections.abc import Iterator

from muster.cluster.checks.registry import Finding, check
from muster.cluster.definition import Definition
from muster.cluster.gpus import Gpus, Nvidia
from muster.cluster.nodes import VirtualMachines
from muster.nvidia import Gpu, branches, fitting, gpus, modules_of, named


def _branch(d: Definition) -> tuple[Nvidia, int] | None:
    """The wanted driver and its branch, if there is such a driver."""
    nvidia = d.cluster.nvidia
    branch = nvidia.branch_on(d.cluster.os) if nvidia else None
    if nvidia is None or branch not in branches(d.cluster.os, nvidia.source):
        return None
    return nvidia, branch


def _sets(d: Definition) -> Iterator[tuple[str, Gpus, Gpu | None]]:
    """Node sets with GPUs: name, what the definition says of them, and the model if it is known."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus:
            yield name, nodes.gpus, named(nodes.gpus.type or "")


def _remedy(d: Definition, gpu: Gpu) -> str:
    """What to say instead: the first driver that the GPU can use."""
    for source, driver in fitting(d.cluster.os, gpu):
        return f"say nvidia: {{source: {source}, branch: {driver.branch}}}"
    return f"{d.cluster.os} has none for it: set another os, or leave `nvidia` out and install one"


@check("nvidia-without-gpus")
def nvidia_without_gpus(d: Definition) -> Iterator[Finding]:
    """A driver for GPUs, and no node has any."""
    sets = d.cluster.nodes.values()
    of_vms = [nodes for nodes in sets if isinstance(nodes, VirtualMachines)]
    # Of an unknown machine type another check tells.
    if d.cluster.nvidia and not list(_sets(d)) and all(nodes.shape for nodes in of_vms):
        yield Finding(
            ("nvidia",),
            "no node set has GPUs",
            "take a machine type with GPUs, such as g2-standard-8, or take `nvidia` out"
            if of_vms
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
    """A branch that the source has not."""
    nvidia = d.cluster.nvidia
    there = branches(d.cluster.os, nvidia.source) if nvidia else []
    if nvidia and there and nvidia.branch not in (None, *there):
        found = " or ".join(map(str, there))
        where = "NVIDIA's repository" if nvidia.source == "nvidia" else d.cluster.os
        yield Finding(
            ("nvidia", "branch"),
            f"{where} has no driver of branch {nvidia.branch}",
            f"say branch: {found}",
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
    """A GPU of unknown type, and no word which kernel modules it needs."""
    nvidia = d.cluster.nvidia
    if nvidia is None or nvidia.modules is not None:
        return
    for name, found, gpu in _sets(d):
        if gpu is None:
            unknown = f'"{found.type}" is no GPU that Muster knows'
            yield Finding(
                ("nodes", name, "gpus", *(["type"] if found.type else [])),
                f"{unknown if found.type else 'no type is said'}, so the kernel modules are not "
                "known either",
                f"say the type, such as {_examples()}, or nvidia: {{modules: open}} (Turing and "
                "newer) or {modules: proprietary}",
            )


def _examples() -> str:
    return ", ".join(name for name in ("h100", "l4", "rtx4080") if name in gpus())


@check("nvidia-branch-of-gpu")
def nvidia_branch_of_gpu(d: Definition) -> Iterator[Finding]:
    """A driver that is too old for a GPU, or too new."""
    if wanted := _branch(d):
        nvidia, branch = wanted
        for name, found, gpu in _sets(d):
            if gpu and not gpu.known_to(branch):
                first, last = gpu.generation.first_branch, gpu.generation.last_branch
                span = f"{first} or newer" if branch < first else f"{last} or older"
                whose = f"{d.cluster.os} has" if nvidia.branch is None else "`nvidia` says"
                yield Finding(
                    ("nodes", name, "gpus", "type"),
                    f"{found.type} ({gpu.generation.name}) needs a driver of branch {span}, and "
                    f"{whose} {branch}",
                    _remedy(d, gpu),
                )


@check("nvidia-modules-of-gpu")
def nvidia_modules_of_gpu(d: Definition) -> Iterator[Finding]:
    """Kernel modules that a GPU can't use."""
    if wanted := _branch(d):
        nvidia, branch = wanted
        there = modules_of(d.cluster.os, nvidia.source, branch)
        for name, found, gpu in _sets(d):
            if gpu is None or not gpu.known_to(branch):
                continue
            able = [kind for kind in gpu.modules(branch) if kind in there]
            if nvidia.modules in there and nvidia.modules not in able:
                yield Finding(
                    ("nodes", name, "gpus", "type"),
                    f"{found.type} ({gpu.generation.name}) can't use the {nvidia.modules} modules "
                    f"of branch {branch}",
                    f"say nvidia: {{modules: {able[0]}}}, or leave `modules` out"
                    if able
                    else _remedy(d, gpu),
                )


@check("vms-without-driver")
def vms_without_driver(d: Definition) -> Iterator[Finding]:
    """VMs with GPUs, and no driver in their image."""
    for name, nodes in d.cluster.nodes.items():
        if isinstance(nodes, VirtualMachines) and nodes.gpus and d.cluster.nvidia is None:
            yield Finding(
                ("nodes", name, "machine_type"),
                f"{nodes.machine_type} has GPUs, and the image of its VMs has no driver for them",
                "say nvidia: {}, which puts it there",
            )
