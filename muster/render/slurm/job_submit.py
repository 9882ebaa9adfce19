"""job_submit.lua: slurmctld runs it for each job that is submitted or modified.

SLURM itself also refuses a job with an unknown type of GPU, but does not say which types exist,
and only where no node could ever run it. Of a limit it says the name alone
(QOSMaxWallDurationPerJobLimit). The plugin is a part of Debian's package slurm-wlm-basic-plugins,
which slurmctld depends on.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from json import dumps
from typing import Any

from muster.definition.definition import Definition
from muster.definition.gres import gpu_sets, gpu_types
from muster.definition.job_shares import free_mib
from muster.definition.limited import limits_jobs
from muster.render import limits

_NOT_LIMITS = {"Priority", "GraceTime", "Preempt", "PreemptMode", "Flags"}


def has_job_submit(definition: Definition) -> bool:
    """Whether the cluster has anything to say of jobs: it has GPUs, or limits."""
    return bool(gpu_sets(definition)) or limits_jobs(definition)


def job_submit_lua(definition: Definition) -> str:
    """Return the script; empty for a cluster that does not load the plugin."""
    if not has_job_submit(definition):
        return ""
    partitions = _partitions(definition)
    tables = {
        "TYPES": dict.fromkeys(gpu_types(definition), True),
        "INSTEAD": _instead(definition),
        "QOS": _qos(definition) if limits_jobs(definition) else {},
        "ACCOUNTS": _accounts(definition) if limits_jobs(definition) else {},
        "PARTITIONS": partitions,
        "WITH_GPUS": [name for name, one in partitions.items() if one["gpus"]],
    }
    head = "".join(f"local {name} = {_lua(value)}\n" for name, value in tables.items())
    scripts = [
        files("muster.render.slurm").joinpath(name).read_text()
        for name in ("job_limits.lua", "job_submit.lua")
    ]
    return "\n".join([head, *scripts])


def _qos(definition: Definition) -> dict[str, Any]:
    """Return what QoS limit, by name; SLURM does not tell upper from lower case."""
    return {
        one["name"].lower(): {
            "name": one["name"],
            "DenyOnLimit": one["limits"]["Flags"]["DenyOnLimit"],
            **{key: value for key, value in one["limits"].items() if key not in _NOT_LIMITS},
        }
        for one in limits.qos(definition)
    }


def _accounts(definition: Definition) -> dict[str, Any]:
    """Return what accounts and their users limit, and the only QoS that they may use, by name."""
    found = {}
    for name, account in definition.cluster.accounts.items():
        given = limits.of_account(definition, account, set(account.associations))
        found[name.lower()] = {
            "name": name,
            "parent": (account.parent or "root").lower(),
            "qos": account.qos,
            "users": {user: {} for user in account.users}
            | {one["user"]: {"qos": one["qos"], **one["limits"]} for one in given["associations"]},
            **given["limits"],
        }
    return found


def _partitions(definition: Definition) -> dict[str, Any]:
    """Return the most GPUs that a node of each partition has, and its memory for each of them."""
    nodes = definition.cluster.nodes
    found = {}
    for name, partition in definition.cluster.partitions.items():
        sets = [nodes[one] for one in partition.nodes]
        counts = [sum(one.gpus.offers.values()) if one.gpus else 0 for one in sets]
        shares = [free_mib(one) // count for one, count in zip(sets, counts, strict=True) if count]
        found[name] = {"gpus": max(counts, default=0), "mem": max(shares, default=0)}
    return found


def _lua(value: Any) -> str:
    """Return a value in Lua's notation; names have nothing that JSON and Lua write differently."""
    if isinstance(value, Mapping):
        parts = (f"[{dumps(k)}] = {_lua(v)}" for k, v in value.items() if v is not None)
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"{{{', '.join(map(_lua, value))}}}"
    return dumps(value)


def _instead(definition: Definition) -> str:
    if not gpu_sets(definition):
        return "there are no GPUs here, ask for none"
    types: Iterable[str] = gpu_types(definition)
    match list(types):
        case []:
            return "they have no types here, ask for --gpus=1 instead"
        case [only]:
            return f"ask for {only}, the only one"
        case several:
            return f"ask for one of these: {', '.join(several)}"
