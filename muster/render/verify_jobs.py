"""What the test job of each partition asks for, so that limits let it run; pure.

It runs as root, which may use SLURM's own QoS `normal` alone, and is in no account of the
definition: what limits it are the partition's QoS and, where that says nothing, `normal`. This is
the usual: least and most GPUs, CPUs, memory and nodes. Where SLURM refuses the job all the same,
for another limit, the role says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.definition.definition import Definition
from muster.definition.schema.limits import Qos, Tres
from muster.definition.schema.node_sets import NodeSet, Partition

MEMORY_MIB = 16
NORMAL = "normal"
_LEAST = "min_tres_per_job"
_MOST = ("max_tres_per_job", "max_tres_per_user", "max_tres_per_account", "grp_tres")
_SHARED = ("grp_tres", "grp_tres_run_mins", "grp_jobs")
"""Other jobs may use all that these allow, so that the test job waits."""


def verify_jobs(definition: Definition) -> dict[str, dict[str, Any]]:
    """Return partition -> its job: `options` of sbatch, the `least` and `most` nodes, and `shared`.

    `most` is null without a limit, and 0 where the partition takes no job of root, or where a job
    must ask for what some of its nodes don't have. `shared`: it may wait for a limit.
    """
    return {
        name: _job(definition, partition)
        for name, partition in definition.cluster.partitions.items()
    }


def _job(definition: Definition, partition: Partition) -> dict[str, Any]:
    cluster = definition.cluster
    # The later one counts.
    qos = [cluster.qos[one] for one in (NORMAL, partition.qos) if one in cluster.qos]
    shared = any(getattr(one, key) is not None for one in qos for key in _SHARED)
    having = [_has(cluster.nodes[name]) for name in partition.nodes]
    least, a_node = _least(_limits(qos, _LEAST), having)
    taken = NORMAL in (partition.allow_qos or [NORMAL]) and NORMAL not in partition.deny_qos
    if not taken or not all(one.get(key) for key in a_node for one in having):
        return {"options": [], "least": 1, "most": 0, "shared": shared}
    counts = [
        amount // a_node[key]
        for most in _MOST
        for key, amount in _limits(qos, most).items()
        if a_node.get(key)
    ]
    options = [f"--mem={a_node['memory_mib']}M", f"--cpus-per-task={a_node['cpu']}"]
    typed = [key.removeprefix("gpu:") + f":{n}" for key, n in a_node.items() if _is_type(key)]
    if gpus := a_node.get("gpu"):
        options.append(f"--gpus-per-node={','.join(typed) or gpus}")
    return {
        "options": options,
        "least": least,
        "most": min(counts, default=None),
        "shared": shared,
    }


def _limits(qos: Sequence[Qos], limit: str) -> dict[str, int]:
    """What a limit says of CPUs, memory, nodes and GPUs, by the keys of Tres."""
    found: dict[str, int] = {}
    for one in qos:
        found |= _amounts(getattr(one, limit))
    return found


def _least(
    wanted: Mapping[str, int], having: Sequence[Mapping[str, int]]
) -> tuple[int, dict[str, int]]:
    """Return how many nodes the job needs at least, and what it asks for on each."""
    wanted = {
        **wanted,
        "cpu": max(1, wanted.get("cpu", 0)),
        "memory_mib": max(MEMORY_MIB, wanted.get("memory_mib", 0)),
    }
    typed = sum(amount for key, amount in wanted.items() if _is_type(key))
    if typed:
        wanted["gpu"] = typed
    nodes, a_node = wanted.pop("node", 1), {"node": 1}
    for key, amount in wanted.items():
        if amount:
            there = min((one[key] for one in having if one.get(key)), default=amount)
            a_node[key] = min(amount, there)
            nodes = max(nodes, -(-amount // a_node[key]))
    return nodes, a_node


def _is_type(key: str) -> bool:
    return key.startswith("gpu:")


def _has(node_set: NodeSet) -> dict[str, int]:
    """What a node has, by the keys of Tres; of a type of GPU by `gpu:TYPE`."""
    gpus = node_set.gpus.offers if node_set.gpus else {}
    return {
        "cpu": node_set.cpus,
        "memory_mib": node_set.memory_mib - node_set.reserved_memory_mib,
        "node": 1,
        "gpu": sum(gpus.values()),
        **{f"gpu:{name}": count for name, count in gpus.items()},
    }


def _amounts(tres: Tres | None) -> dict[str, int]:
    if tres is None:
        return {}
    said = {key: getattr(tres, key) for key in ("cpu", "memory_mib", "node", "gpu")}
    said |= {f"gpu:{name}": count for name, count in tres.gpu_types.items()}
    return {key: amount for key, amount in said.items() if amount is not None}
