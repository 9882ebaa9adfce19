"""Checks of limits against what jobs have unasked, or must have: limits in which none can run."""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

from muster.definition.checks.contradicting_limits import Level, people_limits
from muster.definition.checks.limits import NORMAL, allowed, associations, usable
from muster.definition.checks.limits_and_nodes import LEAST, WORDS, limited, partitions_of
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.job_shares import (
    cpus_by_gpu,
    least_cpus,
    memory_by_cpu_mib,
    memory_by_gpu_mib,
)
from muster.definition.problems import counted
from muster.definition.schema.limits import Association, Qos, Tres
from muster.definition.schema.node_sets import NodeSet, Partition
from muster.definition.yaml_file import KeyPath

OF_ONE_JOB = ("max_tres_per_job", "max_tres_per_user", "max_tres_per_account", "grp_tres")
"""Limits that bound one job, too."""


@dataclass(frozen=True)
class Share:
    """What a GPU of a job brings unasked."""

    key: str
    """Of Tres."""
    parameter: str
    """The key of the partition."""
    option: str
    """By which a job asks for less."""
    of: Callable[[Partition, Iterable[NodeSet]], int | None]
    """How much it is in a partition; None: nothing."""

    def least(self, d: Definition, partitions: Iterable[Partition]) -> int:
        """The least in those partitions that have GPUs; 0 where none has."""
        sets = [(one, node_sets(d, one)) for one in partitions]
        having = [pair for pair in sets if any(nodes.gpus for nodes in pair[1])]
        return min((self.of(*pair) or 0 for pair in having), default=0)


SHARES = (
    Share("cpu", "cpus_per_gpu", "--cpus-per-gpu", cpus_by_gpu),
    Share("memory_mib", "memory_per_gpu_mib", "--mem-per-gpu", memory_by_gpu_mib),
)


def amount_of(limits: Association | Qos | None, limit: str, key: str) -> int | None:
    """An amount of a limit; None: there is none."""
    found: int | None = getattr(getattr(limits, limit, None), key, None)
    return found


def node_sets(d: Definition, partition: Partition) -> list[NodeSet]:
    """The node sets of a partition that are there."""
    return [d.cluster.nodes[name] for name in partition.nodes if name in d.cluster.nodes]


def places(
    d: Definition, path: KeyPath, limits: Association | Qos
) -> tuple[list[Partition], list[Qos]]:
    """The partitions of jobs that have these limits, and the QoS whose limits go before them.

    These are the QoS of the partitions with GPUs, and for an account those that its jobs may have.
    """
    if isinstance(limits, Qos):
        names: list[str] = []
        partitions = partitions_of(d, str(path[1]))
    else:
        names = allowed(d, str(path[1]), limits.qos)
        partitions = [part for name in names for part in usable(d, name)]
    with_gpus = [one for one in partitions if any(nodes.gpus for nodes in node_sets(d, one))]
    before = [d.cluster.qos.get(name or "") for name in [one.qos for one in with_gpus] + names]
    return partitions, [qos for qos in before if qos is not None and qos is not limits]


@check("gpu-share-above-limit")
def gpu_share_above_limit(d: Definition) -> Iterator[Finding]:
    """A limit of CPUs or memory below what one GPU brings unasked: no GPU job could run.

    Only where the limit is one of GPU jobs: it has GPUs too, or each job there must ask for one.
    """
    for path, limits in limited(d):
        # 0 keeps all jobs out, on purpose.
        bounds = [
            (limit, share, most)
            for limit in ("max_tres_per_node", *OF_ONE_JOB)
            for share in SHARES
            if (most := amount_of(limits, limit, share.key))
        ]
        if not bounds:
            continue
        partitions, others = places(d, path, limits)
        if not (_gives_gpus(limits) or _all_need_gpus(d, partitions)):
            continue
        for limit, share, most in bounds:
            gpus = 1 if limit == "max_tres_per_node" else amount_of(limits, LEAST, "gpu") or 1
            needs = share.least(d, partitions) * gpus
            if needs > most and all(amount_of(qos, limit, share.key) is None for qos in others):
                yield Finding(
                    (*path, limit, share.key),
                    f"a job with {counted(gpus, 'GPU')} has {needs} {WORDS[share.key]} unasked, so "
                    "none can start that does not ask for less",
                    f"raise it to {needs} or more, or give the partition a smaller "
                    f"`{share.parameter}`",
                )


def _gives_gpus(limits: Association | Qos) -> bool:
    """Whether the limits are of jobs with GPUs."""
    amounts = [getattr(limits, key) for key in type(limits).model_fields]
    tres = [value for value in amounts if isinstance(value, Tres)]
    return any(value.gpu or any(value.gpu_types.values()) for value in tres)


def _all_need_gpus(d: Definition, partitions: Iterable[Partition]) -> bool:
    """Whether each job in the partitions must ask for a GPU, by their QoS."""
    return all(amount_of(d.cluster.qos.get(one.qos or ""), LEAST, "gpu") for one in partitions)


@check("smallest-job-above-limit")
def smallest_job_above_limit(d: Definition) -> Iterator[Finding]:
    """A limit of CPUs or memory below what the smallest job has unasked: none could start."""
    # 0 keeps all jobs out, on purpose.
    given = {
        (*path, limit, share.key): amount
        for path, limits in limited(d)
        for limit in ("max_tres_per_node", *OF_ONE_JOB)
        for share in SHARES
        if (amount := amount_of(limits, limit, share.key))
    }
    if not given:
        return
    told = {finding.path for finding in gpu_share_above_limit(d)}
    for path, needs in _needs(d, given).items():
        least = min(needs)
        if least <= given[path] or path in told:
            continue
        if path[-1] == "cpu":
            yield Finding(
                path,
                f"with `consumable: core` jobs get whole cores, of {least} CPUs, so none can start",
                f"raise it to {least} or more",
                because=("scheduling", "consumable"),
            )
        else:
            unit = "; if you meant GiB, write MiB" if given[path] < 1024 else ""
            yield Finding(
                path,
                f"each job has {least} MiB of memory or more unasked, so none can start that does "
                "not ask for less",
                f"raise it to {least} or more, or give the partition a smaller "
                f"`memory_per_cpu_mib`{unit}",
            )


def _needs(d: Definition, given: Container[KeyPath]) -> dict[KeyPath, set[int]]:
    """For each limit what the smallest job has where the limit is the one that bounds it."""
    needs: dict[KeyPath, set[int]] = {}
    seen: set[tuple[tuple[str, ...], tuple[KeyPath, ...]]] = set()
    for names, levels in people_limits(d):
        # Of thousands of accounts most have no such limits.
        having = [level for level in levels if _has_any(level, given)]
        alike = tuple(names), tuple(path for path, _ in having)
        if alike in seen:
            continue
        seen.add(alike)
        for name in names:
            for partition in usable(d, name):
                its = [one for one in (partition.qos, name) if one in d.cluster.qos]
                qos: list[Level] = [(("qos", one), d.cluster.qos[one]) for one in its if one]
                for path, key in _bounding(qos, having):
                    if path in given:
                        needs.setdefault(path, set()).add(_smallest(d, partition, qos, key))
    return needs


def _has_any(level: Level, given: Container[KeyPath]) -> bool:
    limits = ("max_tres_per_node", *OF_ONE_JOB)
    return any((*level[0], limit, share.key) in given for limit in limits for share in SHARES)


def _bounding(qos: list[Level], levels: list[Level]) -> Iterator[tuple[KeyPath, str]]:
    """The limits that bound a job, of its QoS and of its accounts, and the key of each."""
    for limit in ("max_tres_per_node", *OF_ONE_JOB):
        for share in SHARES:
            key = share.key
            of_qos = [level for level in qos if amount_of(level[1], limit, key) is not None]
            others = [level for level in levels if amount_of(level[1], limit, key) is not None]
            # Of accounts those of all jobs together hold at each level.
            bounding = of_qos[:1] or (others if limit == "grp_tres" else others[:1])
            yield from (((*path, limit, key), key) for path, _ in bounding)


def _smallest(d: Definition, partition: Partition, qos: list[Level], key: str) -> int:
    """What the smallest job in a partition has unasked; 0 where its QoS make it ask for some."""
    sets = node_sets(d, partition)
    if not sets or any(amount_of(one, LEAST, key) for _, one in qos):
        return 0
    cpus = least_cpus(d.cluster.scheduling.consumable, sets)
    if key == "cpu":
        return cpus if cpus > 1 else 0
    shares = [memory_by_cpu_mib(partition, sets) * cpus, memory_by_gpu_mib(partition, sets)]
    return min(share for share in shares if share)


@check("least-above-limits-of-jobs")
def least_above_limits_of_jobs(d: Definition) -> Iterator[Finding]:
    """A partition whose QoS wants more of each job than the job's QoS or account allows."""
    closed: list[Partition] = []
    for name, partition in d.cluster.partitions.items():
        for key, words in WORDS.items():
            least = amount_of(d.cluster.qos.get(partition.qos or ""), LEAST, key)
            bounds = [] if least is None else list(_bounds(d, partition, key))
            if bounds and None not in bounds:
                closed.append(partition)
                path, amount = next(bound for bound in bounds if bound)
                yield Finding(
                    ("qos", partition.qos or "", LEAST, key),
                    f'each job in the partition "{name}" needs {least} {words}, and nobody may '
                    f"have as many, since {'.'.join(map(str, path))} allows {amount}",
                    "lower the first or raise the second",
                    other=path,
                )
    chosen = {name for _, account, one in associations(d) for name in allowed(d, account, one.qos)}
    for name in d.cluster.qos:
        partitions = usable(d, name)
        if name in chosen and not any(one in closed for one in partitions):
            yield from _nowhere(d, name, partitions)


def _bounds(d: Definition, partition: Partition, key: str) -> Iterator[tuple[KeyPath, int] | None]:
    """For each kind of job that people may run there the first limit below what it must have."""
    taken = {
        name
        for name in (NORMAL, *d.cluster.qos)
        if any(one is partition for one in usable(d, name))
    }
    for names, levels in people_limits(d):
        for name in names:
            if name in taken:
                yield next(_below(d, partition, name, levels, key), None)


def _below(
    d: Definition, partition: Partition, name: str, levels: list[Level], key: str
) -> Iterator[tuple[KeyPath, int]]:
    """Limits of a job's QoS and accounts below what the QoS of a partition wants of each job."""
    its = d.cluster.qos.get(partition.qos or "")
    least = amount_of(its, LEAST, key) or 0
    for limit in OF_ONE_JOB:
        if amount_of(its, limit, key) is not None:
            continue  # it holds instead, and has a check of its own
        own: list[Level] = [(("qos", name), d.cluster.qos[name])] if name in d.cluster.qos else []
        of_qos = [level for level in own if amount_of(level[1], limit, key) is not None]
        given = of_qos or [level for level in levels if amount_of(level[1], limit, key) is not None]
        # Of accounts those of all jobs together hold at each level.
        for path, limits in given if limit == "grp_tres" else given[:1]:
            amount = amount_of(limits, limit, key)
            if amount is not None and amount < least:
                yield (*path, limit, key), amount


def _nowhere(d: Definition, name: str, partitions: list[Partition]) -> Iterator[Finding]:
    """A QoS whose jobs have too little for all partitions that take it."""
    for key, words in WORDS.items():
        found = [next(_below(d, one, name, [], key), None) for one in partitions if one.qos != name]
        if not found or len(found) < len(partitions) or not found[0] or None in found:
            continue
        path, amount = found[0]
        leasts = [
            amount_of(d.cluster.qos.get(one.qos or ""), LEAST, key) or 0 for one in partitions
        ]
        # 0 keeps all jobs out, on purpose.
        if amount:
            yield Finding(
                path,
                f"each job needs {min(leasts)} {words} or more in the partitions for it, by "
                f"min_tres_per_job of their QoS, and this allows {amount}",
                "raise it, or lower the other",
            )
