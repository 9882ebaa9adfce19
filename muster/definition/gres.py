"""The GPUs of a cluster as SLURM names them: GRES, their types, and the TRES that count them."""

from muster.definition.definition import Definition
from muster.definition.schema.node_sets import NodeSet


def gpu_sets(definition: Definition) -> list[NodeSet]:
    """Return the node sets with GPUs."""
    return [node_set for node_set in definition.cluster.nodes.values() if node_set.gpus]


def gpu_types(definition: Definition) -> list[str]:
    """Return the types of GPU by which jobs can ask, sorted."""
    sets = gpu_sets(definition)
    types = {name for node_set in sets if node_set.gpus for name in node_set.gpus.offers}
    return sorted(types - {""})


def gres_names(definition: Definition) -> list[str]:
    """Return what GresTypes names: shards only where a GPU has some."""
    shards = any(node_set.gpus and node_set.gpus.shards for node_set in gpu_sets(definition))
    return ["gpu", "shard"] if shards else ["gpu"]


def accounted_gres(definition: Definition) -> list[str]:
    """Return what AccountingStorageTRES names: none without GPUs or without accounting."""
    if not gpu_sets(definition) or not definition.hosts.groups.get("database"):
        return []
    names = [f"gres/{name}" for name in gres_names(definition)]
    return [*names, *(f"gres/gpu:{name}" for name in gpu_types(definition))]
