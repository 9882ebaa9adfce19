"""Checks of the machine types of a cluster in Google Cloud."""

from collections.abc import Iterator

from muster.catalog import accelerators, disk_types, iam_limits
from muster.catalog.machine_types import MachineType, machine_types
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.problems import counted
from muster.definition.schema.node_sets import VirtualMachines
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath


def vms(d: Definition) -> Iterator[tuple[str, VirtualMachines]]:
    """The node sets of VMs."""
    for name, nodes in d.cluster.nodes.items():
        if isinstance(nodes, VirtualMachines):
            yield name, nodes


def _types(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for name, nodes in vms(d):
        yield ("nodes", name, "machine_type"), nodes.machine_type
        for index, other in enumerate(nodes.fallback):
            if other.machine_type:
                yield ("nodes", name, "fallback", index, "machine_type"), other.machine_type
    if cloud := d.cluster.cloud:
        yield ("cloud", "controller", "machine_type"), cloud.controller.machine_type
        yield ("cloud", "login", "machine_type"), cloud.login.machine_type
        yield ("cloud", "image", "machine_type"), cloud.image.machine_type


@check("machine-type-unknown")
def machine_type_unknown(d: Definition) -> Iterator[Finding]:
    """A machine type that Google does not have, or Muster does not know the shape of."""
    for path, name in _types(d):
        if name not in machine_types():
            yield Finding(path, f'no machine type "{name}" is known', _known_like(name))


def _known_like(name: str) -> str:
    """The machine type that is likely meant, or those that Muster knows.

    Only the word in the middle can be misspelt: with other numbers it is another machine.
    """
    folded = name.casefold().replace("_", "-")
    if folded in machine_types():
        return f'did you mean "{folded}"?'
    series, kind, size = [*folded.split("-", 2), "", ""][:3]
    known = [shape.name.split("-", 2) for shape in machine_types().values()]
    words = [parts[1] for parts in known if (parts[0], parts[-1]) == (series, size)]
    if near := nearest(kind, words):
        return f'did you mean "{series}-{near}-{size}"?'
    if sizes := [parts[-1] for parts in known if parts[:-1] == [series, kind]]:
        return f"of {series}-{kind} Muster knows {', '.join(sizes)}"
    without = {shape.series for shape in machine_types().values() if not shape.gpus}
    has_gpus = "gpu" in kind or (series.startswith(("a", "g")) and series not in without)
    families = {
        shape.name.rpartition("-")[0]: None
        for shape in machine_types().values()
        if bool(shape.gpus) == has_gpus
    }
    return (
        f"take one of muster/catalog/machine_types.py; {'with' if has_gpus else 'without'} GPUs "
        f"those are of {', '.join(families)}"
    )


@check("machine-type-with-gpus")
def machine_type_with_gpus(d: Definition) -> Iterator[Finding]:
    """GPUs where no job runs."""
    for path, name in _types(d):
        known = machine_types().get(name)
        if path[0] == "cloud" and known and known.gpus:
            yield Finding(
                path,
                f"{name} has GPUs, and no job runs there",
                "take a machine type without GPUs; a node set may have some",
            )


def _fallbacks(d: Definition) -> Iterator[tuple[KeyPath, MachineType, MachineType]]:
    """Each known machine type to fall back to, with that of its node set."""
    for name, nodes in vms(d):
        for index, other in enumerate(nodes.fallback):
            shape = nodes.ways[index + 1].shape
            if other.machine_type and shape and nodes.shape:
                yield ("nodes", name, "fallback", index, "machine_type"), shape, nodes.shape


@check("fallback-of-another-shape")
def fallback_of_another_shape(d: Definition) -> Iterator[Finding]:
    """A machine type to fall back to with other CPUs than SLURM expects of the node."""
    for path, shape, first in _fallbacks(d):
        fallback = (shape.cpus, shape.threads_per_core)
        expected = (first.cpus, first.threads_per_core)
        if fallback != expected:
            yield Finding(
                path,
                f"{shape.name} has {counted(fallback[0], 'CPU')} with "
                f"{counted(fallback[1], 'thread')} a core, and {first.name} has {expected[0]} "
                f"with {expected[1]}",
                "take a machine type of the same shape, or make another node set of it",
            )


@check("fallback-with-other-gpus")
def fallback_with_other_gpus(d: Definition) -> Iterator[Finding]:
    """A machine type to fall back to with other GPUs than slurm.conf has."""
    for path, shape, first in _fallbacks(d):
        fallback, expected = _gpus_of(shape), _gpus_of(first)
        if fallback != expected:
            yield Finding(
                path,
                f"{shape.name} has {fallback}, and {first.name} has {expected}",
                "take a machine type with the same GPUs, or make another node set of it",
            )


def _gpus_of(shape: MachineType) -> str:
    return f"{shape.gpus} {shape.short_gpu_type}" if shape.gpus else "no GPU"


@check("fallback-twice")
def fallback_twice(d: Definition) -> Iterator[Finding]:
    """A way to make a node that is listed before."""
    for name, nodes in vms(d):
        ways = nodes.ways
        for index in range(len(nodes.fallback)):
            if ways[index + 1] in ways[: index + 1]:
                yield Finding(
                    ("nodes", name, "fallback", index),
                    "is what was tried before it",
                    "name another machine_type, change spot, or take it out",
                )


@check("accelerators-not-possible")
def accelerators_not_possible(d: Definition) -> Iterator[Finding]:
    """GPUs that can't be attached to a machine type, or not so many."""
    for name, nodes in vms(d):
        wanted, shape = nodes.accelerators, machine_types().get(nodes.machine_type)
        if wanted is None or shape is None:
            continue
        path = ("nodes", name, "accelerators")
        most = accelerators.most_cpus(wanted.type)
        if not accelerators.taken_by(shape):
            why = f"already has {_gpus_of(shape)}" if shape.gpus else "takes none"
            yield Finding(
                path,
                f"{shape.name} {why}",
                "leave it out, or take a machine type of N1, such as n1-standard-8",
            )
        elif wanted.count not in most:
            yield Finding(
                (*path, "count"),
                f"a VM can't have {wanted.count} {wanted.type}",
                f"take {', '.join(map(str, most))}",
            )
        elif shape.cpus > most[wanted.count]:
            yield Finding(
                path,
                f"{shape.name} has {shape.cpus} CPUs, and beside {wanted.count} {wanted.type} "
                f"{most[wanted.count]} are the most",
                "take a smaller machine type, or more GPUs",
            )


@check("local-ssds-not-possible")
def local_ssds_not_possible(d: Definition) -> Iterator[Finding]:
    """A number of local SSDs that a machine type does not take, or it always has some."""
    for name, nodes in vms(d):
        shape = nodes.shape
        if not nodes.local_ssds or shape is None or _takes(shape, nodes.local_ssds):
            continue
        path = ("nodes", name, "local_ssds")
        if shape.local_ssds:
            yield Finding(path, f"{shape.name} always has {shape.local_ssds}", "leave it out")
        elif shape.numbers_of_local_ssds:
            numbers = ", ".join(map(str, shape.numbers_of_local_ssds))
            yield Finding(path, f"{shape.name} can't have {nodes.local_ssds}", f"take {numbers}")
        else:
            yield Finding(
                path,
                f"{shape.name} can't have local SSDs",
                "leave it out, or take machine types such as n2-standard-8",
            )


def _takes(shape: MachineType, local_ssds: int) -> bool:
    return local_ssds in shape.numbers_of_local_ssds


@check("fallback-with-other-local-ssds")
def fallback_with_other_local_ssds(d: Definition) -> Iterator[Finding]:
    """A machine type to fall back to that does not take as many local SSDs."""
    sets = dict(vms(d))
    for path, shape, first in _fallbacks(d):
        wanted = sets[str(path[1])].local_ssds
        if wanted and _takes(first, wanted) and not _takes(shape, wanted):
            yield Finding(
                path,
                f"{shape.name} can't have {wanted} local SSDs, as {first.name} has",
                "take another machine type, or another number of `local_ssds` that both can have",
            )


def _disks(d: Definition) -> Iterator[tuple[KeyPath, str, list[str]]]:
    """Each disk: where its type is written, its type, the machine types that it is attached to."""
    for name, nodes in vms(d):
        types = [way.machine_type for way in nodes.ways]
        yield ("nodes", name, "disk", "type"), nodes.disk.type, types
    if cloud := d.cluster.cloud:
        controller, login = cloud.controller, cloud.login
        for key, disk in (("disk", controller.disk), ("state_disk", controller.state_disk)):
            place = ("cloud", "controller", key, "type")
            yield place, disk.type, [controller.machine_type]
        yield ("cloud", "login", "disk", "type"), login.disk.type, [login.machine_type]


@check("disk-type-not-possible")
def disk_type_not_possible(d: Definition) -> Iterator[Finding]:
    """A type of disk that a machine type does not take."""
    for path, disk_type, names in _disks(d):
        shapes = [machine_types()[name] for name in names if name in machine_types()]
        without = [s.name for s in shapes if disk_type not in disk_types.of_series(s.series)]
        if without:
            possible = [
                other
                for other in disk_types.of_series(shapes[0].series)
                if all(other in disk_types.of_series(shape.series) for shape in shapes)
            ]
            yield Finding(
                path,
                f"{' and '.join(dict.fromkeys(without))} can't have a disk of type {disk_type}",
                f"take {' or '.join(possible)}",
            )


@check("too-many-vm-sets")
def too_many_vm_sets(d: Definition) -> Iterator[Finding]:
    """More node sets of VMs than the controller's rights in Google Cloud can name."""
    beyond = [name for name, _ in vms(d)][iam_limits.NODE_SETS :]
    for name in beyond[:1]:
        yield Finding(
            ("nodes", name),
            f"the controller's rights in Google Cloud can name {iam_limits.NODE_SETS} node sets, "
            "and this is one more",
            "make one node set of several that are alike",
        )


@check("compact-not-possible")
def compact_not_possible(d: Definition) -> Iterator[Finding]:
    """A compact placement policy for machines that Google does not place so."""
    for name, nodes in vms(d):
        for way in nodes.ways if nodes.compact else []:
            shape = machine_types().get(way.machine_type)
            if shape and not shape.compact_placement:
                yield Finding(
                    ("nodes", name, "compact"),
                    f"{way.machine_type} can't be placed compactly",
                    "leave it out, or take machine types such as c2-standard-8",
                )
