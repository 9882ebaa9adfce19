"""How many jobs SLURM's queue must hold, from what people may submit."""

from collections.abc import Iterable, Iterator

from muster.definition.checks.limits import accounts_above, qos_of_users, takes
from muster.definition.definition import Definition
from muster.definition.yaml_file import KeyPath

LEAST = 20_000
"""Ten people with all that `max_submit_jobs` lets them have."""
MOST = 100_000
"""slurmctld keeps each job in memory, and looks at all of them."""
_STEP = 10_000
"""slurmctld restarts for another size, so not for each person."""
OF_ALL = ("scheduling", "max_submit_jobs")
SUBMIT_IN_PLACE = ("max_submit_jobs_per_user", "max_submit_jobs_per_account")
"""Bounds of a QoS by which SLURM does not look at those of associations (acct_policy_validate)."""


def bound_of_association(d: Definition, account: str, user: str) -> tuple[KeyPath, int | None]:
    """Key and number of the bound of a user's jobs in an account; None: no bound.

    SLURM looks at the user's association first, then at the accounts upwards; the uppermost has
    `scheduling.max_submit_jobs`.
    """
    own = d.cluster.accounts[account].associations.get(user)
    if own and own.max_submit_jobs is not None:
        path = ("accounts", account, "associations", user, "max_submit_jobs")
        return path, own.max_submit_jobs
    for above, one in accounts_above(d, account):
        if one.max_submit_jobs is not None:
            return (*above, "max_submit_jobs"), one.max_submit_jobs
    return OF_ALL, d.cluster.scheduling.max_submit_jobs


def submit_bounds(d: Definition) -> Iterator[tuple[str, str, KeyPath, int | None]]:
    """Account, user, key and number of each bound of jobs, which add up; None: no bound."""
    people = d.cluster.users.people
    known: dict[tuple[tuple[str, ...], bool], list[tuple[KeyPath, int] | None]] = {}
    seen: set[tuple[str, KeyPath]] = set()
    for account, user, names in qos_of_users(d):
        if user in people and people[user].state == "absent":
            continue
        of_association = bound_of_association(d, account, user)
        key = (tuple(names), of_association[1] is None)
        if key not in known:
            # Without a bound of the association, what a QoS allows all of its jobs is the only one.
            of_all = ["grp_submit_jobs"] if of_association[1] is None else []
            known[key] = _of_qos(d, names, [*SUBMIT_IN_PLACE, *of_all])
        for of_qos in known[key]:
            path, bound = of_qos or of_association
            # Of a user in several accounts the others are one bound for all of these.
            of_each = of_qos is None or path[-1] == "max_submit_jobs_per_account"
            if of_each or (user, path) not in seen:
                seen.add((user, path))
                yield account, user, path, bound


def _of_qos(
    d: Definition, names: Iterable[str], keys: Iterable[str]
) -> list[tuple[KeyPath, int] | None]:
    """Keys and numbers of the bounds that jobs have by a QoS; None: some have that of accounts.

    The QoS of the partition goes before that of the job.
    """
    parts = d.cluster.partitions.values()
    kinds = dict.fromkeys((p.qos or "", name) for name in names for p in parts if takes(p, name))
    return list(dict.fromkeys(_first(d, kind, keys) for kind in kinds))


def _first(d: Definition, kind: Iterable[str], keys: Iterable[str]) -> tuple[KeyPath, int] | None:
    for name in kind:
        for key in keys if name in d.cluster.qos else ():
            bound: int | None = getattr(d.cluster.qos[name], key)
            if bound is not None:
                return ("qos", name, key), bound
    return None


def _of_whom(account: str, user: str, path: KeyPath) -> tuple[KeyPath, str, str]:
    """Return for whom a bound is one: some are of an account, or of all, together."""
    if path[-1] == "grp_submit_jobs":
        return path, "", ""
    return path, account, "" if path[-1] == "max_submit_jobs_per_account" else user


def queue_places(d: Definition) -> int:
    """Return MaxJobCount: a place for each job that people may have, between two bounds."""
    wanted = {_of_whom(account, user, path): n for account, user, path, n in submit_bounds(d)}
    places = sum(bound or 0 for bound in wanted.values())
    return min(max(-(-places // _STEP) * _STEP, LEAST), MOST)
