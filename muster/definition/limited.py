"""Whether a definition limits jobs, so that SLURM refuses some or lets them wait."""

from muster.definition.definition import Definition
from muster.definition.schema.limits import Association

_NOT_LIMITS = {"fairshare", "qos", "default_qos"}


def limits_jobs(definition: Definition) -> bool:
    """Whether it has limits, apart from the bound of jobs that each cluster has by default.

    Accounts and QoS are refused where there is no accounting, which SLURM needs for limits.
    """
    accounts = definition.cluster.accounts.values()
    limited = [*accounts, *(one for account in accounts for one in account.associations.values())]
    return bool(definition.cluster.qos) or any(
        getattr(one, key) is not None
        for one in limited
        for key in Association.model_fields
        if key not in _NOT_LIMITS
    )
