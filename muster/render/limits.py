"""Limits and QoS: definition -> what the role `accounts` takes, in sacctmgr's words. Pure."""

from typing import Any

from muster.definition import Definition
from muster.definition.schema.limits import Association, Qos, Tres, TresMinutes
from muster.definition.schema.people import Account
from muster.definition.schema.times import ENDLESS, seconds

# Keys of the definition with another name in sacctmgr than their words joined.
_NAMES = {
    "max_wall": "MaxWallDurationPerJob",
    "grace_seconds": "GraceTime",
}
_NOT_LIMITS = {"fairshare", "qos", "default_qos", "preempt", "preempt_mode", "deny_on_limit"}


def qos(definition: Definition) -> list[dict[str, Any]]:
    """Return the QoS as the role `accounts` takes them."""
    preempted = {name for of_one in definition.cluster.qos.values() for name in of_one.preempt}
    return [
        {"name": name, "limits": _of_qos(of_one, name in preempted)}
        for name, of_one in definition.cluster.qos.items()
    ]


def _of_qos(of_one: Qos, is_preempted: bool) -> dict[str, Any]:
    limits = _limits(of_one, Qos)
    limits["Preempt"] = of_one.preempt
    limits["PreemptMode"] = of_one.preempt_mode if is_preempted else "cluster"
    limits["Flags"] = {"DenyOnLimit": of_one.deny_on_limit}
    return limits


def of_account(definition: Definition, account: Account, present: set[str]) -> dict[str, Any]:
    """Return limits, QoS and coordinators of an account; of people only those who are there.

    An account at the top has the bound of jobs that holds for everybody below: SLURM looks for a
    limit at the user's association first, then upwards. Others say that they have none: they may
    have had it at the top, before.
    """
    is_at_top = account.parent in (None, "root")
    bound = definition.cluster.scheduling.max_submit_jobs if is_at_top else None
    return {
        "limits": {"MaxSubmitJobs": bound, **_limits(account, Association)},
        "qos": account.qos,
        "default_qos": account.default_qos,
        "coordinators": [user for user in account.coordinators if user in present],
        "associations": [
            _of_user(user, association)
            for user, association in account.associations.items()
            if user in present
        ],
    }


def _of_user(user: str, association: Association) -> dict[str, Any]:
    return {
        "user": user,
        "fairshare": association.fairshare,
        "limits": _limits(association, Association),
        "qos": association.qos,
        "default_qos": association.default_qos,
    }


def _limits(model: Association | Qos, kind: type[Association] | type[Qos]) -> dict[str, Any]:
    """Return what is limited by the keys of `kind`, by sacctmgr's names."""
    limits = {}
    for key in (key for key in kind.model_fields if key not in _NOT_LIMITS):
        value = getattr(model, key)
        if isinstance(value, Tres | TresMinutes):
            value = tres(value)
        elif key == "max_wall" and value is not None:
            value = None if value.upper() in ENDLESS else int(-(-seconds(value) // 60))
        if value is not None:
            limits[sacctmgr_name(key)] = value
    return limits


def sacctmgr_name(key: str) -> str:
    """Return what sacctmgr calls a limit of the definition."""
    words = ("TRES" if word == "tres" else word.capitalize() for word in key.split("_"))
    return _NAMES.get(key) or "".join(words)


def tres(amounts: Tres | TresMinutes) -> dict[str, int]:
    """Return amounts by SLURM's names of TRES; memory is in MiB."""
    named = {
        "cpu": amounts.cpu,
        "node": amounts.node,
        "gres/gpu": amounts.gpu,
        "billing": amounts.billing,
    }
    if isinstance(amounts, Tres):
        named["mem"] = amounts.memory_mib
        named |= {f"gres/gpu:{name}": number for name, number in amounts.gpu_types.items()}
    return {name: number for name, number in named.items() if number is not None}
