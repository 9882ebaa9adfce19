"""Checks of node sets: their hosts, memory and GPUs."""

import re
from collections.abc import Iterator

from muster.catalog import hostlists
from muster.definition.checks.hosts import meant_groups
from muster.definition.checks.misspelt import misspelt
from muster.definition.checks.names import RESERVED_FOR_GROUPS
from muster.definition.checks.paths import is_well_formed
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ListedTwice, Spelling, at, table
from muster.definition.definition import HOST_GROUPS, Definition
from muster.definition.problems import counted
from muster.definition.schema.node_sets import MOST_16_BITS, Machines

# Operators of --constraint are & | ( ) [ ] * and the comma (sbatch(1)).
_FEATURE = r"[A-Za-z0-9][A-Za-z0-9_.=:+-]*"
_GPU_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# What SLURM reads as the number of GPUs: suffix_mult in src/common/slurm_protocol_defs.c.
_GPU_COUNT = re.compile(r"[0-9]+([kmgtp](i?b)?)?", re.IGNORECASE)


def _standing(d: Definition) -> list[str]:
    """Node sets whose hosts are in hosts.yml; without one that is called like another group."""
    if d.cluster.cloud is not None:
        return []
    sets = d.cluster.nodes.items()
    machines = [name for name, nodes in sets if isinstance(nodes, Machines)]
    return [name for name in machines if name not in RESERVED_FOR_GROUPS]


def _is_gpu_type(text: str) -> bool:
    return bool(_GPU_TYPE.fullmatch(text)) and not _GPU_COUNT.fullmatch(text)


def _devices(hostlist: str) -> list[str]:
    """Device files by name; empty where the text is no hostlist."""
    try:
        return hostlists.expand(hostlist)
    except ValueError:
        return []


# fmt: off
table(
    Spelling("feature-name",
        "A feature that jobs could not ask for: --constraint gives its characters a meaning",
        at("nodes.<name>.features.[]"), _FEATURE,
        '"{value}" can\'t be a feature',
        "use letters, digits and ._=:+- only; write several as a list: [a, b]"),
    ListedTwice("feature-twice",
        "A feature that a node set lists twice",
        at("nodes.<name>.features.[]")),
    Spelling("gpu-type",
        "A GPU type that --gres=gpu:TYPE:N can't name",
        at("nodes.<name>.gpus.type"), _is_gpu_type,
        '"{value}" can\'t be a type of GPU',
        "use letters, digits and ._-, and nothing that SLURM reads as a number of GPUs "
        "(4080, 4k): such as rtx4080"),
    Spelling("gpu-devices-unreadable",
        "Device files that are no hostlist",
        at("nodes.<name>.gpus.devices"), _devices,
        'can\'t read "{value}"',
        "write it like /dev/nvidia[0-3]"),
)
# fmt: on


@check("no-node-set")
def no_node_set(d: Definition) -> Iterator[Finding]:
    """A cluster without nodes: slurmctld does not start."""
    if not d.cluster.nodes:
        yield Finding(("nodes",), "no node set", "describe at least one kind of compute node")


@check("node-set-without-hosts", reads_hosts=True)
def node_set_without_hosts(d: Definition) -> Iterator[Finding]:
    """A node set that no host belongs to."""
    misspelt_groups = meant_groups(d).values()
    for name in _standing(d):
        if not d.hosts_of(name) and name not in misspelt_groups:
            yield Finding(
                ("nodes", name),
                f'no host is in the group "{name}" of hosts.yml',
                f'add the group "{name}" with its hosts to the children of `compute`',
            )


@check("node-set-outside-compute", reads_hosts=True)
def node_set_outside_compute(d: Definition) -> Iterator[Finding]:
    """A host of a node set that is not in the group compute, so it gets no slurmd."""
    compute = set(d.hosts.groups.get("compute", ()))
    outside: dict[str, str] = {}
    for name in _standing(d):
        for host in d.hosts_of(name):
            if host not in compute:
                outside.setdefault(name, host)
    if not outside or "compute" in meant_groups(d).values():
        return
    name, host = next(iter(outside.items()))
    groups = ", ".join(f'"{group}"' for group in outside)
    if not compute and (other := _group_of_node_sets(d)):
        remedy = f'call the group "{other}" `compute`'
    elif len(outside) == 1:
        remedy = f"make the group {groups} a child of `compute`"
    else:
        remedy = f"make the groups {groups} children of `compute`"
    yield Finding(
        (name,), f'{host} is in the node set "{name}" and not in `compute`', remedy, "hosts"
    )


def _group_of_node_sets(d: Definition) -> str | None:
    """A group without a meaning that has the hosts of all node sets, and no others."""
    hosts = {host for name in _standing(d) for host in d.hosts_of(name)}
    known = {*HOST_GROUPS, *d.cluster.nodes, "all", "ungrouped"}
    same = (name for name, there in d.hosts.groups.items() if hosts == {*there})
    return next((name for name in same if name not in known), None)


@check("compute-host-in-no-set", reads_hosts=True)
def compute_host_in_no_set(d: Definition) -> Iterator[Finding]:
    """A host of the group compute that no node set describes."""
    # Other checks say that a name is misspelt, or that VMs are not in hosts.yml.
    names = [*d.cluster.nodes, *meant_groups(d), *(name.used for name in misspelt(d))]
    described = {host for name in names for host in d.hosts.groups.get(name, ())}
    for host in d.hosts.groups.get("compute", ()):
        if d.cluster.nodes and host not in described:
            yield Finding(
                ("compute", host),
                f"{host} is in `compute` and in no node set",
                f"move it into the group of a node set ({', '.join(d.cluster.nodes)}), or "
                f"describe a new one in cluster.yml",
                "hosts",
            )


@check("compute-host-in-two-sets", reads_hosts=True)
def compute_host_in_two_sets(d: Definition) -> Iterator[Finding]:
    """A host in two node sets: SLURM would know it twice."""
    first: dict[str, str] = {}
    for name in _standing(d):
        for host in d.hosts_of(name):
            if first.setdefault(host, name) != name:
                yield Finding(
                    (name, host),
                    f'{host} is in the node sets "{first[host]}" and "{name}"',
                    "leave it in the one that describes its hardware",
                    "hosts",
                    mistake=f"{first[host]} {name}",
                )


@check("reserved-memory")
def reserved_memory(d: Definition) -> Iterator[Finding]:
    """Reserved memory that leaves nothing for jobs."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.reserved_memory_mib >= nodes.memory_mib:
            yield Finding(
                ("nodes", name, "reserved_memory_mib"),
                f"{nodes.reserved_memory_mib} MiB of {nodes.memory_mib} MiB leave jobs nothing",
                "reserve less",
            )


@check("too-many-cpus")
def too_many_cpus(d: Definition) -> Iterator[Finding]:
    """More CPUs in a node than SLURM can count."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.cpus > MOST_16_BITS:
            yield Finding(
                ("nodes", name),
                f"{nodes.cpus} CPUs in one node",
                "cores_per_socket is cores of one socket, threads_per_core threads of one core",
            )


@check("gpu-devices-count")
def gpu_devices_count(d: Definition) -> Iterator[Finding]:
    """A number of device files that differs from the number of GPUs."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus:
            devices = _devices(nodes.gpus.devices)
            right = all(is_well_formed(file) and file.startswith("/dev/") for file in devices)
            if devices and right and len(devices) != nodes.gpus.count:
                yield Finding(
                    ("nodes", name, "gpus", "devices"),
                    f'"{nodes.gpus.devices}" names {counted(len(devices), "device")} and '
                    f"`count` is {nodes.gpus.count}",
                    "make them equal: one device file per GPU",
                )


@check("gpu-devices-path")
def gpu_devices_path(d: Definition) -> Iterator[Finding]:
    """GPU devices that are not below /dev."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus:
            files = _devices(nodes.gpus.devices)
            outside = (file for file in files if not file.startswith("/dev/"))
            wrong = next((file for file in outside if is_well_formed(file)), None)
            if wrong is not None:
                yield Finding(
                    ("nodes", name, "gpus", "devices"),
                    f'"{wrong}" is no file below /dev',
                    "write full paths, like /dev/nvidia[0-3]",
                )


@check("gpu-autodetect-release")
def gpu_autodetect_release(d: Definition) -> Iterator[Finding]:
    """Detection of GPUs with a release of SLURM that can't do it."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus and nodes.gpus.autodetect and d.cluster.slurm_version < "24.11":
            yield Finding(
                ("nodes", name, "gpus", "autodetect"),
                f"SLURM {d.cluster.slurm_version} can't detect NVIDIA's GPUs, 24.11 is the first",
                "leave autodetect out; `devices` names the device files",
            )


@check("gpu-autodetect-and-devices")
def gpu_autodetect_and_devices(d: Definition) -> Iterator[Finding]:
    """GPUs that are to be detected, and named as well."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus and nodes.gpus.autodetect and "devices" in nodes.gpus.model_fields_set:
            yield Finding(
                ("nodes", name, "gpus", "devices"),
                "the device files are named, and autodetect is to find them",
                "take one of the two out",
            )


@check("gpu-shards-release")
def gpu_shards_release(d: Definition) -> Iterator[Finding]:
    """Shards of GPUs in a release of SLURM that has none."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus and nodes.gpus.shards and d.cluster.slurm_version < "22.05":
            yield Finding(
                ("nodes", name, "gpus", "shards"),
                f"SLURM {d.cluster.slurm_version} has no shards, 22.05 is the first",
                "leave shards out",
            )
