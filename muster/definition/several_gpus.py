"""What several GPUs of a job bring unasked, beyond a limit or a node that one of them fits in.

SLURM does not cut CPUs and memory by default (DefCpuPerGPU, DefMemPerGPU) down to what is allowed
or there: the job waits, is refused, or has a second node. No errors: people may ask for less.
"""

from collections.abc import Iterator

from muster.definition.checks.limits_and_nodes import WORDS, limited
from muster.definition.checks.limits_of_jobs import (
    OF_ONE_JOB,
    SHARES,
    amount_of,
    node_sets,
    places,
)
from muster.definition.definition import Definition
from muster.definition.job_shares import free_mib


def beyond_limits(definition: Definition) -> Iterator[str]:
    """Return sentences about limits whose GPUs bring more than their CPUs or memory."""
    for path, limits in limited(definition):
        for limit in ("max_tres_per_node", *OF_ONE_JOB):
            gpus = amount_of(limits, limit, "gpu") or 0
            for share in SHARES:
                most = amount_of(limits, limit, share.key)
                if gpus < 2 or not most:
                    continue
                partitions, others = places(definition, path, limits)
                each = share.least(definition, partitions)
                held = (amount_of(qos, limit, key) for qos in others for key in (share.key, "gpu"))
                # Where not even one GPU fits in, that is an error.
                if each <= most < each * gpus and all(amount is None for amount in held):
                    yield (
                        f"{'.'.join(map(str, path))}.{limit}: {gpus} GPUs bring {each * gpus} "
                        f"{WORDS[share.key]} unasked, and {most} are allowed, enough for "
                        f"{most // each}; raise `{share.key}` to {each * gpus}, give the partition "
                        f"a smaller `{share.parameter}`, or tell people to ask for less "
                        f"({share.option})"
                    )


def beyond_nodes(definition: Definition) -> Iterator[str]:
    """Return sentences about partitions where all GPUs of a node bring more than it has."""
    for name, partition in definition.cluster.partitions.items():
        for nodes in node_sets(definition, partition):
            if nodes.gpus is None:
                continue
            gpus = sum(nodes.gpus.offers.values())
            has = {"cpu": nodes.cpus, "memory_mib": free_mib(nodes)}
            for share in SHARES:
                each = getattr(partition, share.parameter) or 0
                # Likewise.
                if each <= has[share.key] < each * gpus:
                    yield (
                        f"partitions.{name}.{share.parameter}: {gpus} GPUs of a node bring "
                        f"{each * gpus} {WORDS[share.key]} unasked, and it has {has[share.key]}, "
                        f"enough for {has[share.key] // each}; lower it to "
                        f"{has[share.key] // gpus}, or tell people to ask for less "
                        f"({share.option})"
                    )
