"""Checks of limits against nodes and partitions: what is never reached, or lets no job run."""

from collections.abc import Iterable, Iterator
from math import isfinite

from muster.definition.checks.limits import NORMAL, allowed, associations, usable
from muster.definition.checks.registry import Finding, check, suggestion
from muster.definition.definition import Definition
from muster.definition.schema import times
from muster.definition.schema.limits import Association, Qos, Tres
from muster.definition.schema.node_sets import NodeSet, Partition, VirtualMachines
from muster.definition.yaml_file import KeyPath

WORDS = {"cpu": "CPUs", "memory_mib": "MiB of memory", "node": "nodes", "gpu": "GPUs"}
_OF_A_NODE, _OF_A_JOB = "max_tres_per_node", "max_tres_per_job"
LEAST = "min_tres_per_job"


def _count(d: Definition, name: str, node_set: NodeSet) -> int:
    """Nodes of a set."""
    if isinstance(node_set, VirtualMachines):
        return node_set.max_nodes
    return len(d.hosts.groups.get(name, ()))


def _gpus(node_set: NodeSet) -> dict[str, int]:
    """GPUs of a node by type, without those that have none."""
    return {name: n for name, n in node_set.gpus.offers.items() if name} if node_set.gpus else {}


def _has(node_set: NodeSet) -> dict[str, int]:
    """What one node has, by the keys of Tres."""
    gpus = sum(node_set.gpus.offers.values()) if node_set.gpus else 0
    return {
        "cpu": node_set.cpus,
        "memory_mib": node_set.memory_mib - node_set.reserved_memory_mib,
        "node": 1,
        "gpu": gpus,
    }


def _totals(d: Definition, names: Iterable[str]) -> dict[str, int]:
    """What all nodes of some sets have together."""
    totals = dict.fromkeys(WORDS, 0)
    for name in names:
        if name in d.cluster.nodes:
            node_set = d.cluster.nodes[name]
            for key, amount in _has(node_set).items():
                totals[key] += amount * _count(d, name, node_set)
    return totals


def _most(places: list[dict[str, int]]) -> dict[str, int]:
    """The most that one of some places has of each."""
    return {key: max((place[key] for place in places), default=0) for key in WORDS}


def limited(d: Definition) -> Iterator[tuple[KeyPath, Association | Qos]]:
    """All that has limits: accounts, settings of their users, QoS."""
    for path, _, association in associations(d):
        yield path, association
    for name, qos in d.cluster.qos.items():
        yield ("qos", name), qos


def _amounts(d: Definition) -> Iterator[tuple[KeyPath, str, Tres]]:
    """The amounts of all limits, each with its path and the key of the limit."""
    for path, limits in limited(d):
        for key in type(limits).model_fields:
            value = getattr(limits, key)
            if isinstance(value, Tres):
                yield (*path, key), key, value


def partitions_of(d: Definition, qos: str) -> list[Partition]:
    """The partitions in which a QoS limits jobs: where it is chosen, or where it is theirs.

    All partitions where nobody may choose it, and none has it: that is an error already.
    """
    chosen = {name for _, account, one in associations(d) for name in allowed(d, account, one.qos)}
    if qos in chosen | {NORMAL}:
        return usable(d, qos)
    everywhere = list(d.cluster.partitions.values())
    return [partition for partition in everywhere if partition.qos == qos] or everywhere


@check("limit-above-nodes")
def limit_above_nodes(d: Definition) -> Iterator[Finding]:
    """A limit above what the nodes have whose jobs it limits: it is never reached."""
    for path, limit, amounts in _amounts(d):
        said, there = _bound(d, path, limit)
        for key, words in WORDS.items():
            amount = getattr(amounts, key)
            # Without hosts yet there is nothing to compare with.
            if limit != LEAST and amount is not None and there["node"] > 0 and amount > there[key]:
                yield Finding(
                    (*path, key),
                    f"{said} {there[key]} {words}, so a limit of {amount} is never reached",
                    "lower it, or take it out",
                    because=("nodes",),
                )


def _bound(d: Definition, path: KeyPath, limit: str) -> tuple[str, dict[str, int]]:
    """What a limit can't be above: words for a sentence, and amounts."""
    partitions = list(d.cluster.partitions.values())
    names, its = list(d.cluster.nodes), ""
    if path[0] == "qos":
        own = partitions_of(d, str(path[1]))
        if len(own) < len(partitions):
            partitions, its = own, " of its partitions"
            names = list(dict.fromkeys(name for one in own for name in one.nodes))
    if limit == _OF_A_NODE:
        having = [_has(d.cluster.nodes[name]) for name in names if name in d.cluster.nodes]
        return f"no node{its} has more than", _most(having)
    if limit == _OF_A_JOB:
        totals = [_totals(d, partition.nodes) for partition in partitions]
        return (f"none{its}" if its else "no partition") + " has more than", _most(totals)
    return f"the nodes{its} have" if its else "the cluster has", _totals(d, names)


@check("limit-unknown-gpu-type")
def limit_unknown_gpu_type(d: Definition) -> Iterator[Finding]:
    """A limit of a type of GPU that no node has."""
    known = {name for node_set in d.cluster.nodes.values() for name in _gpus(node_set)}
    for path, _, amounts in _amounts(d):
        for name in amounts.gpu_types:
            if name not in known:
                remedy = f"choose from {', '.join(sorted(known))}" if known else "limit `gpu`"
                yield Finding(
                    (*path, "gpu_types", name),
                    f'no node has GPUs of type "{name}"',
                    suggestion(name, known, remedy),
                    because=("nodes",),
                )


@check("least-above-nodes")
def least_above_nodes(d: Definition) -> Iterator[Finding]:
    """A QoS that wants more of each job than its nodes have: none could ever run."""
    for name, qos in d.cluster.qos.items():
        if qos.min_tres_per_job is None:
            continue
        for place, there in _places(d, name):
            for key, words in WORDS.items():
                least = getattr(qos.min_tres_per_job, key)
                if least is not None and there["node"] and least > there[key]:
                    yield Finding(
                        ("qos", name, LEAST, key),
                        f"each job needs {least} {words}, and {place} {there[key]}",
                        "lower it",
                        because=("nodes",),
                    )


def _places(d: Definition, name: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Where jobs of a QoS run: each partition that has it as its own, or the largest for it."""
    own = {key: part for key, part in d.cluster.partitions.items() if part.qos == name}
    for key, partition in own.items():
        yield f'the partition "{key}" has', _totals(d, partition.nodes)
    if not own:
        totals = [_totals(d, partition.nodes) for partition in usable(d, name)]
        yield "no partition for it has more than", _most(totals)


@check("least-above-limit")
def least_above_limit(d: Definition) -> Iterator[Finding]:
    """A QoS that wants more of each job than it allows one: none could ever run."""
    limits = ("max_tres_per_job", "max_tres_per_user", "max_tres_per_account", "grp_tres")
    for name, qos in d.cluster.qos.items():
        for limit in limits:
            most: Tres | None = getattr(qos, limit)
            for key, words in WORDS.items():
                least = getattr(qos.min_tres_per_job, key, None)
                amount = getattr(most, key, None)
                if least is not None and amount is not None and least > amount:
                    yield Finding(
                        ("qos", name, LEAST, key),
                        f"each job needs {least} {words}, and {limit} allows {amount}",
                        "lower one or raise the other",
                    )


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return times.seconds(text)
    except times.TimeError:
        return None


@check("max-wall-above-partitions")
def max_wall_above_partitions(d: Definition) -> Iterator[Finding]:
    """A longest time of jobs beyond that of all their partitions: it is never reached."""
    for path, limits in limited(d):
        wall = _seconds(limits.max_wall)
        longest = _longest(d, path[1] if isinstance(limits, Qos) else None)
        if wall is not None and longest is not None and isfinite(wall) and wall > longest[0]:
            yield Finding(
                (*path, "max_wall"),
                f"{limits.max_wall} is longer than max_time of all partitions for it, at most "
                f"{longest[1]}",
                "lower it, take it out, or raise `max_time` of a partition",
            )


def _longest(d: Definition, qos: object) -> tuple[float, str] | None:
    """The longest max_time of the partitions that jobs may use; None: no bound, or no partition.

    `qos`: of jobs of this QoS; None: of all jobs.
    """
    everywhere = list(d.cluster.partitions.values())
    partitions = usable(d, qos) if isinstance(qos, str) else everywhere
    spelt = [(_seconds(partition.max_time), partition.max_time) for partition in partitions]
    known = [(seconds, text) for seconds, text in spelt if seconds is not None]
    if not known or len(known) < len(spelt) or not isfinite(max(known)[0]):
        return None
    return max(known)
