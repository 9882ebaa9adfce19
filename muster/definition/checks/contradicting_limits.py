"""Checks of limits against each other: what is never reached, or lets no job start."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from muster.definition.checks.limits import NORMAL, accounts_above, allowed, associations, usable
from muster.definition.checks.queue_places import SUBMIT_IN_PLACE, queue_places, submit_bounds
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.problems import counted
from muster.definition.schema import times
from muster.definition.schema.limits import Association, Qos, Tres, TresMinutes
from muster.definition.yaml_file import KeyPath

_WORDS = {"cpu": "CPUs", "memory_mib": "MiB of memory", "node": "nodes", "gpu": "GPUs"}
_NOUNS = {"cpu": "CPU", "node": "node", "gpu": "GPU"}
_JOBS = "jobs"
Limits = Association | Qos
Level = tuple[KeyPath, Limits]
"""Limits with their keys."""


@dataclass(frozen=True)
class Pair:
    """A limit that can't be above another: `inner` <= `outer`."""

    inner: str
    outer: str
    nearest: bool = False
    """Of the accounts above only the nearest one that has `outer` counts, as others inherit it."""


# fmt: off
OF_A_QOS = (
    Pair("max_tres_per_node", "max_tres_per_job"),
    Pair("max_tres_per_job", "max_tres_per_user"),
    Pair("max_tres_per_job", "max_tres_per_account"),
    Pair("max_tres_per_job", "grp_tres"),
    Pair("max_tres_per_user", "grp_tres"),
    Pair("max_tres_per_account", "grp_tres"),
    Pair("max_jobs_per_user", "max_submit_jobs_per_user"),
    Pair("max_jobs_per_user", "grp_jobs"),
    Pair("max_jobs_per_account", "max_submit_jobs_per_account"),
    Pair("max_jobs_per_account", "grp_jobs"),
    Pair("max_submit_jobs_per_user", "grp_submit_jobs"),
    Pair("max_submit_jobs_per_account", "grp_submit_jobs"),
    Pair("grp_jobs", "grp_submit_jobs"),
)
"""Within one QoS."""
OF_AN_ASSOCIATION = (
    Pair("max_tres_per_node", "max_tres_per_job", nearest=True),
    Pair("max_tres_per_job", "grp_tres"),
    Pair("max_jobs", "max_submit_jobs", nearest=True),
    Pair("max_jobs", "grp_jobs"),
    Pair("max_submit_jobs", "grp_submit_jobs"),
    Pair("grp_jobs", "grp_submit_jobs"),
)
"""Within an account or an association, and against the accounts above."""
OF_THE_SAME = (
    Pair("grp_tres", "grp_tres"),
    Pair("grp_tres_run_mins", "grp_tres_run_mins"),
    Pair("grp_jobs", "grp_jobs"),
    Pair("grp_submit_jobs", "grp_submit_jobs"),
)
"""Of a user against the account, of an account against those above."""
IN_PLACE = {
    "max_jobs": ("max_jobs_per_user", "max_jobs_per_account"),
    "max_submit_jobs": SUBMIT_IN_PLACE,
}
"""Limits of a QoS that go before one of accounts, where it has another name."""
# fmt: on


def amounts_of(limits: Limits, key: str) -> dict[tuple[str, ...], int]:
    """What a limit allows by the keys below it; a plain number has none."""
    value = getattr(limits, key)
    if value is None:
        return {}
    if not isinstance(value, Tres | TresMinutes):
        return {(): value}
    amounts: dict[tuple[str, ...], Any] = {
        (name,): getattr(value, name) for name in type(value).model_fields
    }
    types = amounts.pop(("gpu_types",), None) or {}
    amounts |= {("gpu_types", name): number for name, number in types.items()}
    return {path: number for path, number in amounts.items() if number is not None}


def _words(path: tuple[str, ...], key: str) -> str:
    if not path:
        return _JOBS
    what = f"GPUs of type {path[1]}" if len(path) > 1 else _WORDS.get(path[0], path[0])
    return f"{what} times minutes" if key == "grp_tres_run_mins" else what


def _bound(amounts: dict[tuple[str, ...], int], path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Which amount bounds the one at `path`: the same, or that of all GPUs for those of a type."""
    wider = ("gpu",) if path[:1] == ("gpu_types",) else path
    return min(
        (one for one in (path, wider) if one in amounts), key=amounts.__getitem__, default=None
    )


def _contradiction(pair: Pair, inner: Level, outer: Level, but: Iterable[str]) -> Iterator[Finding]:
    """What of the inner limit is above the outer one, but for the TRES in `but`."""
    outer_amounts = amounts_of(outer[1], pair.outer)
    for path, amount in amounts_of(inner[1], pair.inner).items():
        bound = _bound(outer_amounts, path)
        # Of nodes a job has one on each node, whatever it may have in all.
        of_a_node = pair.inner == "max_tres_per_node" and path == ("node",)
        if bound is None or of_a_node or "".join(path[:1]) in but:
            continue
        if amount > outer_amounts[bound]:
            other = (*outer[0], pair.outer, *bound)
            yield Finding(
                (*inner[0], pair.inner, *path),
                f"{amount} {_words(path, pair.inner)} are never reached, since "
                f"{'.'.join(map(str, other))} allows {outer_amounts[bound]}",
                "lower the first or raise the second",
                other=other,
            )


def people_limits(d: Definition) -> Iterator[tuple[list[str], list[Level]]]:
    """The QoS and limits, upwards, of each association, and of the other users of each account."""
    for name, account in d.cluster.accounts.items():
        above: list[Level] = [*accounts_above(d, name)]
        own = {user: one for user, one in account.associations.items() if user in account.users}
        for user, one in own.items():
            path: KeyPath = ("accounts", name, "associations", user)
            yield allowed(d, name, one.qos), [(path, one), *above]
        if len(own) < len(account.users):
            yield allowed(d, name), above


def _in_place(d: Definition, key: str) -> set[str]:
    """The TRES that some QoS limits in place of `key` of accounts; "" for a number of jobs."""
    keys = IN_PLACE.get(key, (key,))
    return {
        "".join(path[:1])
        for qos in d.cluster.qos.values()
        for one in keys
        if one in Qos.model_fields
        for path in amounts_of(qos, one)
    }


def _limits_any(limits: Association) -> bool:
    """Whether it has a limit that is compared; of thousands of accounts most have none."""
    pairs = (*OF_AN_ASSOCIATION, *OF_THE_SAME)
    return any(amounts_of(limits, key) for pair in pairs for key in (pair.inner, pair.outer))


@check("limits-contradict")
def limits_contradict(d: Definition) -> Iterator[Finding]:
    """A limit above another one that always holds with it: it is never reached."""
    for name, qos in d.cluster.qos.items():
        here = (("qos", name), qos)
        for pair in OF_A_QOS:
            yield from _first_of_each(_contradiction(pair, here, here, ()))
    limiting = {name for name, account in d.cluster.accounts.items() if _limits_any(account)}
    in_place = {pair: _in_place(d, pair.outer) for pair in OF_AN_ASSOCIATION}
    for path, account, association in associations(d):
        if not _limits_any(association):
            continue
        is_user = len(path) > 2
        above_it = account if is_user else d.cluster.accounts[account].parent
        levels: list[Level] = [
            (path, association),
            *(level for level in accounts_above(d, above_it) if level[0][1] in limiting),
        ]
        for pair in OF_AN_ASSOCIATION:
            having = [level for level in levels if amounts_of(level[1], pair.outer)]
            outer = having[:1] if pair.nearest else having
            # Jobs in a QoS that limits the same are bound by that one instead.
            yield from _first_of_each(
                found
                for one in outer
                for found in _contradiction(pair, levels[0], one, in_place[pair])
            )
        for pair in OF_THE_SAME:
            yield from _first_of_each(
                found for one in levels[1:] for found in _contradiction(pair, levels[0], one, ())
            )


def _first_of_each(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Of several findings about one key the first, which is of the nearest account."""
    return iter({found.path: found for found in reversed(list(findings))}.values())


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else times.seconds(text)
    except times.TimeError:
        return None  # has an error already


def _shortest(d: Definition, qos: Iterable[str], walls: Iterable[str | None], key: str) -> float:
    """The least seconds of a job that asks for no time, where there is what `key` counts."""
    least = float("inf")
    for name in qos:
        own = d.cluster.qos[name].max_wall if name in d.cluster.qos else None
        for partition in usable(d, name):
            if key == "gpu" and not any(
                d.cluster.nodes[one].gpus for one in partition.nodes if one in d.cluster.nodes
            ):
                continue
            most = _seconds(partition.max_time) or 0
            if partition.default_time is not None:
                # Before SLURM looks at limits (_valid_job_part in job_mgr.c).
                least = min(least, most, _seconds(partition.default_time) or 0)
            elif denies(d, name) or denies(d, partition.qos):
                # It gets the whole minutes that are allowed, at least one
                # (_validate_tres_time_limits in acct_policy.c).
                least = min(least, most, 60)
            else:
                for wall in walls if is_endless(own) else [own]:
                    least = min(least, most, most if is_endless(wall) else _seconds(wall) or 0)
    return least


def denies(d: Definition, qos: str | None) -> bool:
    """Whether SLURM refuses what is beyond a limit by itself; `normal` does not by itself."""
    return qos in d.cluster.qos and d.cluster.qos[qos].deny_on_limit


def is_endless(wall: str | None) -> bool:
    """Whether a longest time is none."""
    return wall is None or wall.upper() in times.ENDLESS


@check("no-job-in-run-mins")
def no_job_in_run_mins(d: Definition) -> Iterator[Finding]:
    """A bound of running minutes that no job can start in, unless it asks for less time."""
    walls = {association.max_wall for _, _, association in associations(d)} | {None}
    for name, one in d.cluster.qos.items():
        yield from _too_few_minutes(d, ("qos", name), one, [name], walls)
    for path, account, association in associations(d):
        if association.grp_tres_run_mins:
            names = allowed(d, account, association.qos)
            yield from _too_few_minutes(d, path, association, names, walls)


def _too_few_minutes(
    d: Definition, path: KeyPath, limits: Limits, qos: list[str], walls: Iterable[str | None]
) -> Iterator[Finding]:
    # In a QoS with a bound of its own that one holds instead.
    free = [
        name
        for name in qos or [NORMAL]
        if path == ("qos", name)
        or getattr(d.cluster.qos.get(name), "grp_tres_run_mins", None) is None
    ]
    for key in ("cpu", "gpu", "node"):
        bound = getattr(limits.grp_tres_run_mins, key, None)
        wanted = getattr(getattr(limits, "min_tres_per_job", None), key, None) or 1
        # 0 keeps all jobs out, on purpose.
        if not bound:
            continue
        seconds = _shortest(d, free, walls, key)
        if isfinite(seconds) and bound * 60 < wanted * seconds:
            needs = int(-(-wanted * seconds // 60))
            shorter = ", or lower `default_time` or `max_wall`" if needs > wanted else ""
            yield Finding(
                (*path, "grp_tres_run_mins", key),
                f"a job with {counted(wanted, _NOUNS[key])} that asks for no time needs {needs}, "
                "so none can start",
                f"raise it to {needs} or more{shorter}",
            )


@check("queue-of-one")
def queue_of_one(d: Definition) -> Iterator[Finding]:
    """A person who may submit as many jobs as the queue has places: all others would be refused."""
    if not d.hosts.groups.get("database"):
        return  # accounts are refused there, and nobody has a bound
    given = next((name for name in d.cluster.slurm if name.lower() == "maxjobcount"), None)
    places = queue_places(d)
    if given is not None:
        text = str(d.cluster.slurm[given])
        if not text.isdecimal():
            return  # has an error already, or a suffix
        places = int(text)
    total: dict[str, int] = {}
    for _, user, _, bound in submit_bounds(d):
        total[user] = total.get(user, 0) + (bound or 0)
    name, most = max(total.items(), key=lambda item: item[1], default=("", 0))
    if total and most >= places:
        bounds = {path: n or 0 for _, user, path, n in submit_bounds(d) if user == name}
        largest = max(bounds, key=bounds.__getitem__)
        yield Finding(
            ("slurm", given) if given else largest,
            f"{name} may have {most} jobs, and the queue has {places} places (MaxJobCount), so all "
            f"others are refused when it is full; {'.'.join(map(str, largest))} bounds them",
            "lower that" if given is None else "lower that, or raise MaxJobCount",
            other=largest if given else (),
        )
