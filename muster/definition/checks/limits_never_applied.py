"""Checks of limits of accounts and users that SLURM never applies, since others go first."""

from collections.abc import Iterable, Iterator
from functools import reduce

from muster.definition.checks.contradicting_limits import (
    IN_PLACE,
    Limits,
    amounts_of,
    is_endless,
    people_limits,
)
from muster.definition.checks.limits import (
    accounts_above,
    associations,
    has_unknown_qos,
    qos_of_accounts,
    qos_of_users,
    takes,
)
from muster.definition.checks.queue_places import OF_ALL, bound_of_association
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema import times
from muster.definition.schema.limits import Association, Qos
from muster.definition.yaml_file import KeyPath

_NO_LIMITS = ("fairshare", "qos", "default_qos")
_OF_A_JOB = ("max_wall", "max_tres_per_job", "max_tres_per_node")
"""Limits of each job alone: it is all the same whose they are."""
Amount = tuple[str, ...]
"""A limit of an association, and the keys below it."""
_Found = tuple[KeyPath, float]
"""Where a limit of a QoS is, and what it allows."""
_Held = dict[Amount, set[_Found]]
"""The limits of QoS that hold for jobs in place of those of their association."""


def _amounts(limits: Limits, limit: str) -> dict[tuple[str, ...], float]:
    """What a limit allows by the keys below it; a longest time in seconds."""
    if limit != "max_wall":
        return {**amounts_of(limits, limit)}
    if limits.max_wall is None or is_endless(limits.max_wall):
        return {}
    try:
        return {(): times.seconds(limits.max_wall)}
    except times.TimeError:
        return {}  # has an error already


def _associations(d: Definition) -> Iterator[tuple[KeyPath, str, Association]]:
    """Accounts, and the settings of those who are their users."""
    for path, account, association in associations(d):
        if len(path) == 2 or path[-1] in d.cluster.accounts[account].users:
            yield path, account, association


def _of_association(association: Association) -> dict[Amount, float]:
    return {
        (limit, *keys): amount
        for limit in Association.model_fields
        if limit not in _NO_LIMITS
        for keys, amount in _amounts(association, limit).items()
    }


def _of_qos(name: str, qos: Qos) -> dict[Amount, _Found]:
    """The limits of a QoS, by those of associations that they go before (acct_policy.c)."""
    return {
        (limit, *keys): (("qos", name, own, *keys), amount)
        for limit in Association.model_fields
        if limit not in _NO_LIMITS
        for own in IN_PLACE.get(limit, (limit,))
        for keys, amount in _amounts(qos, own).items()
    }


class _Jobs:
    """What QoS say of the jobs that may use them."""

    def __init__(self, d: Definition) -> None:
        self._partitions = list(d.cluster.partitions.values())
        self._of_qos = {name: _of_qos(name, qos) for name, qos in d.cluster.qos.items()}
        self._known: dict[tuple[str, ...], _Held] = {}

    def held(self, names: Iterable[str]) -> _Held:
        """The limits that each job has by its QoS or that of its partition."""
        key = tuple(names)
        if key not in self._known:
            kinds = {(p.qos or "", one) for one in key for p in self._partitions if takes(p, one)}
            self._known[key] = _in_all([self._of_kind(*kind) for kind in kinds])
        return self._known[key]

    def _of_kind(self, of_partition: str, of_job: str) -> _Held:
        """The QoS of the partition goes before that of the job."""
        first = self._of_qos.get(of_job, {}) | self._of_qos.get(of_partition, {})
        return {amount: {found} for amount, found in first.items()}


def _in_all(several: list[_Held]) -> _Held:
    """What all of them limit."""
    if not several:
        return {}
    common = reduce(lambda keys, held: keys & held.keys(), several, set(several[0]))
    return {key: set().union(*(held[key] for held in several)) for key in common}


def _lists(d: Definition) -> dict[str, set[tuple[str, ...]]]:
    """The lists of QoS that hold for the users of each account and of those below it."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for name, _, names in qos_of_users(d):
        found.setdefault(name, set()).add(tuple(names))
    below: dict[str, set[tuple[str, ...]]] = {}
    for name, lists in found.items():
        for path, _ in accounts_above(d, name):
            below.setdefault(str(path[1]), set()).update(lists)
    return below


@check("limit-hidden-by-qos")
def limit_hidden_by_qos(d: Definition) -> Iterator[Finding]:
    """A limit of accounts or users that each QoS of their jobs has too: that of the QoS goes first.

    In SLURM the first of the partition's QoS, the job's QoS, the user and the accounts that has a
    limit gives it, also one of all jobs together (`grp_tres`, `grp_jobs`...).
    """
    if has_unknown_qos(d):
        return
    jobs = _Jobs(d)
    lists, of_accounts = _lists(d), qos_of_accounts(d)
    for path, account, association in _associations(d):
        limits = _of_association(association)
        if not limits:
            continue
        own = {tuple(association.qos or of_accounts[account])}
        below = own if len(path) > 2 else lists.get(account, own)
        held = _in_all([jobs.held(names) for names in below])
        for amount, allows in limits.items():
            found = held.get(amount, set())
            # Where all say the same, jobs have what is said.
            same = amount[0] in _OF_A_JOB and {given for _, given in found} == {allows}
            if found and not same:
                yield _hidden((*path, *amount), sorted(where for where, _ in found))
    if "max_submit_jobs" in d.cluster.scheduling.model_fields_set:
        bound = {
            tuple(names)
            for account, user, names in qos_of_users(d)
            if bound_of_association(d, account, user)[0] == OF_ALL
        }
        found = _in_all([jobs.held(names) for names in bound]).get(("max_submit_jobs",), set())
        if found and d.cluster.scheduling.max_submit_jobs:
            yield _hidden(OF_ALL, sorted(where for where, _ in found))


def _hidden(path: KeyPath, by: list[KeyPath]) -> Finding:
    of_all = str(by[0][2]).startswith("grp_")
    first = "what a QoS allows all of its jobs together" if of_all else "the limit of a QoS"
    names = [".".join(map(str, where)) for where in by[:3]]
    more = f" or {len(by) - 3} more" if len(by) > 3 else ""
    return Finding(
        path,
        f"SLURM never applies it: {first} goes first, and each of these jobs has "
        f"{' or '.join(names)}{more}",
        "take it out, or write it into a QoS that only they may use",
        other=by[0] if len(by) == 1 else (),
        because=by[0],
    )


@check("wall-unlimited-below-another")
def wall_unlimited_below_another(d: Definition) -> Iterator[Finding]:
    """`UNLIMITED` where another `max_wall` comes after it: to SLURM it is none, so that one holds.

    Of a user or account: that of an account above. Of a QoS: those of all who may use it.
    """
    for path, account, association in _associations(d):
        above = account if len(path) > 2 else d.cluster.accounts[account].parent
        text = association.max_wall
        where = _wall(accounts_above(d, above)) if text and is_endless(text) else None
        if text and where:
            yield _unlimited((*path, "max_wall"), text, where)
    for name, qos in d.cluster.qos.items():
        if qos.max_wall is not None and is_endless(qos.max_wall):
            walls = [_wall(levels) for names, levels in people_limits(d) if name in names]
            if walls and walls[0] and None not in walls:
                yield _unlimited(("qos", name, "max_wall"), qos.max_wall, walls[0])


def _wall(levels: Iterable[tuple[KeyPath, Limits]]) -> KeyPath | None:
    """The first longest time of some levels, upwards."""
    return next(((*path, "max_wall") for path, one in levels if _amounts(one, "max_wall")), None)


def _unlimited(path: KeyPath, text: str, where: KeyPath) -> Finding:
    return Finding(
        path,
        f"{text} is no limit to SLURM, which takes the next one, {'.'.join(map(str, where))}",
        "give the longest time that these jobs may have, or take it out",
        other=where,
        because=where,
    )
