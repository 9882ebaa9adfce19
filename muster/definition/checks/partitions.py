"""Checks of partitions: their nodes, times, groups and memory."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ListedTwice, Spelling, UnknownName, at, table
from muster.definition.definition import Definition
from muster.definition.job_shares import free_mib
from muster.definition.schema import times
from muster.definition.schema.node_sets import VirtualMachines
from muster.definition.yaml_file import KeyPath

TIMES = at(
    "partitions.<name>.max_time",
    "partitions.<name>.default_time",
    "qos.<name>.max_wall",
    "accounts.<name>.max_wall",
    "accounts.<name>.associations.<name>.max_wall",
    "reservations.<name>.duration",
)
"""Times in SLURM's notation."""


def _node_sets(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    # Where there are none at all, another check says so.
    if d.cluster.nodes:
        yield from at("partitions.<name>.nodes.[]")(d)


def _groups(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    # Others may be in the directory: `muster check --hosts` asks the machines.
    if d.cluster.users.directory is None:
        yield from at("partitions.<name>.groups.[]")(d)


def _seconds(text: str) -> float | None:
    try:
        return times.seconds(text)
    except times.TimeError:
        return None


def _is_countable(text: str) -> bool:
    seconds = _seconds(text)
    return seconds is None or seconds == float("inf") or seconds <= times.LONGEST


# fmt: off
table(
    UnknownName("partition-unknown-node-set",
        "A partition that names a node set that is not there",
        _node_sets, "nodes.<name>",
        'no node set "{value}"',
        "describe it below `nodes`"),
    ListedTwice("partition-node-set-twice",
        "A partition that names a node set twice",
        at("partitions.<name>.nodes.[]")),
    Spelling("time-unreadable",
        "A time that SLURM can't read",
        TIMES, lambda time: _seconds(time) is not None,
        'SLURM can\'t read the time "{value}"',
        'write "days-hours:minutes:seconds" ("5-00:00:00"), "hours:minutes:seconds", '
        "minutes or UNLIMITED"),
    Spelling("time-zero",
        "A time limit of 0: every job would end at once",
        TIMES, lambda time: _seconds(time) != 0,
        "no time at all",
        "give at least one minute: 1"),
    Spelling("time-too-long",
        "A time of more days than SLURM can count: 9999999 would become 8234",
        TIMES, _is_countable,
        "SLURM can't count as far as {value}",
        "give at most 24855-00:00:00, or UNLIMITED"),
    UnknownName("partition-unknown-group",
        "A partition for a group that is not there",
        _groups, "users.groups.<name>",
        'no group "{value}"',
        "add it to users.groups"),
    ListedTwice("partition-group-twice",
        "A partition that lists a group twice",
        at("partitions.<name>.groups.[]")),
)
# fmt: on


@check("no-partition")
def no_partition(d: Definition) -> Iterator[Finding]:
    """A cluster without partitions: no job could be submitted."""
    if not d.cluster.partitions:
        yield Finding(("partitions",), "no partition", "describe at least one, with default: true")


@check("partition-without-nodes")
def partition_without_nodes(d: Definition) -> Iterator[Finding]:
    """A partition without a node set."""
    for name, partition in d.cluster.partitions.items():
        if not partition.nodes:
            yield Finding(
                ("partitions", name, "nodes"),
                "no node set",
                f"name at least one of {', '.join(d.cluster.nodes) or 'nodes'}",
            )


@check("vms-in-no-partition")
def vms_in_no_partition(d: Definition) -> Iterator[Finding]:
    """VMs in no partition: SLURM would never power them down."""
    used = {nodes for partition in d.cluster.partitions.values() for nodes in partition.nodes}
    for name, nodes in d.cluster.nodes.items():
        if isinstance(nodes, VirtualMachines) and d.cluster.partitions and name not in used:
            yield Finding(
                ("nodes", name),
                f'"{name}" is in no partition, and SLURM would never power down a VM of it',
                f'add "{name}" to the nodes of a partition, or take it out',
            )


@check("idle-seconds-differ")
def idle_seconds_differ(d: Definition) -> Iterator[Finding]:
    """Different idle_seconds in one partition: SLURM takes the longest for all of its VMs."""
    # SuspendTime belongs to a partition; of a node in several the longest counts: slurm.conf(5).
    for name, partition in d.cluster.partitions.items():
        idle = {
            nodes: node_set.idle_seconds
            for nodes in partition.nodes
            if isinstance(node_set := d.cluster.nodes.get(nodes), VirtualMachines)
        }
        longest = max(idle, key=idle.__getitem__, default="")
        for nodes, seconds in idle.items():
            if seconds < idle[longest]:
                yield Finding(
                    ("partitions", name, "nodes", partition.nodes.index(nodes)),
                    f'"{nodes}" has idle_seconds {seconds}, and SLURM would keep its VMs for '
                    f'{idle[longest]} like those of "{longest}"',
                    "make them equal, or let no partition have both",
                )


@check("no-default-partition")
def no_default_partition(d: Definition) -> Iterator[Finding]:
    """No default partition: `sbatch job.sh` would be refused."""
    partitions = d.cluster.partitions
    if partitions and not any(partition.default for partition in partitions.values()):
        yield Finding(
            ("partitions",),
            "no partition is the default one",
            f"add `default: true` to one of {', '.join(partitions)}",
        )


@check("two-default-partitions")
def two_default_partitions(d: Definition) -> Iterator[Finding]:
    """Two default partitions: SLURM would silently take the last."""
    defaults = [name for name, partition in d.cluster.partitions.items() if partition.default]
    for name in defaults[1:]:
        yield Finding(
            ("partitions", name, "default"),
            f'"{defaults[0]}" is the default partition already',
            "leave `default: true` with one of them",
        )


@check("default-time-above-max")
def default_time_above_max(d: Definition) -> Iterator[Finding]:
    """MaxTime below DefaultTime: jobs that ask for no time would be refused."""
    for name, partition in d.cluster.partitions.items():
        if partition.default_time is None:
            continue
        default, most = _seconds(partition.default_time), _seconds(partition.max_time)
        if default is not None and most is not None and default > most > 0:
            yield Finding(
                ("partitions", name, "default_time"),
                f"{partition.default_time} is longer than max_time {partition.max_time}",
                "lower default_time or raise max_time",
            )


@check("memory-per-cpu-above-node")
def memory_per_cpu_above_node(d: Definition) -> Iterator[Finding]:
    """Default memory per CPU that a node does not have: such jobs would never start."""
    for name, partition in d.cluster.partitions.items():
        for nodes in partition.nodes:
            node_set = d.cluster.nodes.get(nodes)
            if node_set is None or partition.memory_per_cpu_mib is None:
                continue
            usable = node_set.memory_mib - node_set.reserved_memory_mib
            if partition.memory_per_cpu_mib > usable > 0:
                yield Finding(
                    ("partitions", name, "memory_per_cpu_mib"),
                    f'{partition.memory_per_cpu_mib} MiB, and a node of "{nodes}" has {usable}',
                    f"a CPU's share of such a node is {usable // node_set.cpus}",
                )


@check("memory-per-cpu-above-most")
def memory_per_cpu_above_most(d: Definition) -> Iterator[Finding]:
    """Memory per CPU of a job that asks for none, beyond the most that a job may have."""
    for name, partition in d.cluster.partitions.items():
        share, most = partition.memory_per_cpu_mib, partition.max_memory_per_cpu_mib
        if share is not None and most and share > most:
            yield Finding(
                ("partitions", name, "memory_per_cpu_mib"),
                f"{share} MiB, and max_memory_per_cpu_mib allows {most}",
                "lower one or raise the other",
            )


@check("gpu-share-above-node")
def gpu_share_above_node(d: Definition) -> Iterator[Finding]:
    """CPUs or memory of one GPU by default that a node does not have: no such job could start."""
    for name, partition in d.cluster.partitions.items():
        for nodes in partition.nodes:
            node_set = d.cluster.nodes.get(nodes)
            if node_set is None or not node_set.gpus:
                continue
            gpus = sum(node_set.gpus.offers.values())
            for key, unit, has in (
                ("cpus_per_gpu", "CPUs", node_set.cpus),
                ("memory_per_gpu_mib", "MiB", free_mib(node_set)),
            ):
                share = getattr(partition, key)
                if share is not None and share > has > 0:
                    yield Finding(
                        ("partitions", name, key),
                        f'{share} {unit}, and a node of "{nodes}" has {has}',
                        f"a GPU's share of such a node is {has // gpus}",
                    )


@check("memory-per-gpu-without-gpus")
def memory_per_gpu_without_gpus(d: Definition) -> Iterator[Finding]:
    """Default memory per GPU for a partition without GPUs."""
    for name, partition in d.cluster.partitions.items():
        known = [d.cluster.nodes[nodes] for nodes in partition.nodes if nodes in d.cluster.nodes]
        without = known and not any(node_set.gpus for node_set in known)
        if partition.memory_per_gpu_mib is not None and without:
            yield Finding(
                ("partitions", name, "memory_per_gpu_mib"),
                "no node of this partition has GPUs",
                "take it out, or add `gpus` to the node set",
            )
