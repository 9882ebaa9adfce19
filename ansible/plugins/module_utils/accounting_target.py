# SPDX-License-Identifier: Apache-2.0
"""The State that slurmdbd should reach: what is wanted, and what is there and is kept."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    ASSOCIATION_FIELDS,
    DEFAULT_QOS,
    QOS_FIELDS,
    QOS_LIST,
    Fields,
    Key,
    Settings,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    NORMAL,
    PLAIN,
    Association,
    State,
    qos_of,
    without_qos,
)

CLOSED: Key = ("GrpSubmitJobs", "")
"""Of a QoS: 0 lets no new job in, while those that are there go on."""


class Job(NamedTuple):
    """A job that is pending or running."""

    number: str
    account: str
    user: str
    qos: str


def unlisted(current: State, wish: State) -> tuple[set[str], set[Association]]:
    """Return (accounts, associations) that are there and not wanted."""
    accounts = set(current.accounts) - set(wish.accounts)
    associations: set[Association] = set()
    for user, existing in current.users.items():
        of_user = wish.users[user].associations if user in wish.users else frozenset()
        associations |= {
            (user, account, partition) for account, partition in existing.associations - of_user
        }
    return accounts, associations


def unlisted_qos(current: State, wish: State) -> set[str]:
    """Return the QoS that are there and not wanted, but for SLURM's own and what it can't name."""
    return set(filter(PLAIN.fullmatch, current.qos)) - set(wish.qos) - {NORMAL}


def target(
    current: State,
    wish: State,
    prune: bool = False,
    busy: frozenset[tuple[str, str]] = frozenset(),
    draining: frozenset[Job] = frozenset(),
) -> State:
    """Return the State to reach: what is wanted, and what is there and is not to be removed.

    `busy` holds the (account, user) that have jobs: with `prune` they and the accounts above stay.
    `draining` holds jobs that keep a QoS which is not wanted any more, until they have ended.
    """
    accounts, associations = unlisted(current, wish)
    if prune:
        associations = {
            association for association in associations if (association[1], association[0]) in busy
        }
        with_jobs = {account for account, _ in busy} | {
            association[1] for association in associations
        }
        accounts = _with_parents((with_jobs | current.accounts_of_root) & accounts, current)
    kept: dict[str, set[tuple[str, str]]] = {}
    for user, account, partition in associations:
        kept.setdefault(user, set()).add((account, partition))
    users = dict(wish.users)
    for user, extra in kept.items():
        if user in users:
            users[user] = replace(users[user], associations=users[user].associations | extra)
        else:
            existing = current.users[user]
            default = existing.default_account
            if prune and default not in {account for account, _ in extra}:
                default = min(extra)[0]
            # Rights are those of the definition alone: who is not in it keeps none.
            users[user] = replace(
                existing,
                default_account=default,
                admin_level="none",
                associations=frozenset(extra),
            )
    if current.has_other_clusters:
        # Rights are those of all clusters: another one's definition may have given them.
        for user in users.keys() & current.users.keys():
            if users[user].admin_level == "none":
                level = current.users[user].admin_level
                users[user] = replace(users[user], admin_level=level)
    goal = State(
        registered=True,
        accounts={name: current.accounts[name] for name in accounts - set(wish.accounts)}
        | wish.accounts,
        users=users,
        accounts_of_root=current.accounts_of_root,
        qos_of_root=current.qos_of_root,
        has_other_clusters=current.has_other_clusters,
        tres=current.tres,
    )
    goal = _with_settings(goal, current, wish, prune, {job.qos for job in draining})
    closed = _closed(goal, wish, {job.qos for job in draining}) if draining else set()
    for job in sorted(draining):
        goal = _drained(goal, job)
    qos = {
        name: {**settings, CLOSED: "0"} if name in closed else settings
        for name, settings in goal.qos.items()
    }
    return replace(goal, qos=qos)


def _closed(goal: State, wish: State, names: set[str]) -> set[str]:
    """Return which of some QoS take no new jobs: those that are not wanted, and that nobody has.

    Another cluster of the slurmdbd may use any, and every other account may have SLURM's own.
    """
    if goal.has_other_clusters:
        return set()
    return names - wish.qos.keys() - _used_qos(goal) - {NORMAL}


def _drained(goal: State, job: Job) -> State:
    """Return `goal` with the QoS of a job in the list that its association goes by."""
    names = qos_of(goal, job.user, job.account)
    if job.qos in names:
        return goal
    # The account's list, or that of the user if there is one: each run writes both as they are
    # wanted, so that the run after the last job takes it out.
    text = ",".join(sorted(names | {job.qos}))
    association = (job.user, job.account, "")
    own = goal.settings.get(association, {})
    if (QOS_LIST, "") in own:
        settings = {**goal.settings, association: {**own, (QOS_LIST, ""): text}}
        return replace(goal, settings=settings)
    name = job.account
    while (QOS_LIST, "") not in goal.accounts[name].settings:
        above = goal.accounts[name].parent
        if above not in goal.accounts:
            name = job.account
            break
        name = above
    account = goal.accounts[name]
    longer = replace(account, settings={**account.settings, (QOS_LIST, ""): text})
    return replace(goal, accounts={**goal.accounts, name: longer})


def _with_settings(
    goal: State, current: State, wish: State, prune: bool, draining: set[str]
) -> State:
    """Return `goal` with limits and QoS: those that are wanted, and those set by hand."""
    removed = unlisted_qos(current, wish) if prune and not current.has_other_clusters else set()
    removed -= draining | current.qos_of_left_out
    accounts = dict(goal.accounts)
    for name, account in wish.accounts.items():
        before = current.accounts.get(name)
        merged = _merged(
            ASSOCIATION_FIELDS, before.settings if before else {}, account.settings, prune
        )
        coordinators = account.coordinators
        # They are those of all clusters, too.
        if before and (not prune or current.has_other_clusters):
            coordinators |= before.coordinators
        accounts[name] = replace(account, settings=merged, coordinators=coordinators)
    settings: dict[Association, Settings] = {}
    for user, of_user in goal.users.items():
        for account_name, partition in of_user.associations:
            association = (user, account_name, partition)
            settings[association] = _merged(
                ASSOCIATION_FIELDS,
                current.settings.get(association, {}),
                wish.settings.get(association, {}),
                prune,
            )
    qos = {name: settings for name, settings in current.qos.items() if name not in removed}
    opened = {name for name in wish.qos if current.qos.get(name, {}).get(CLOSED) == "0"}
    if opened:
        # One that was drained and comes back to somebody takes jobs again. A partition's is in no
        # list, drained or not: there the 0 may be somebody's.
        all_qos = {**current.qos, **wish.qos}
        used = _used_qos(replace(goal, accounts=accounts, settings=settings, qos=all_qos))
        opened &= used - _used_qos(current)
    for name, wanted in _qos_with_normal(current, wish).items():
        there = current.qos.get(name, {})
        if name in opened:
            there = {key: value for key, value in there.items() if key != CLOSED}
        # Other clusters may limit SLURM's own by what this one does not list.
        is_own = name in wish.qos or not current.has_other_clusters
        qos[name] = _merged(QOS_FIELDS, there, wanted, prune and is_own)
    goal = replace(
        goal,
        accounts={
            name: replace(account, settings=without_qos(account.settings, removed))
            for name, account in accounts.items()
        },
        settings={
            association: left
            for association, of_it in settings.items()
            if (left := without_qos(of_it, removed))
        },
        qos={
            name: without_qos(settings, removed) if PLAIN.fullmatch(name) else settings
            for name, settings in qos.items()
        },
    )
    return _without_lost_defaults(goal, current, wish)


def _qos_with_normal(current: State, wish: State) -> dict[str, Settings]:
    """Return the settings of the QoS that are wanted: of SLURM's own, if it is not listed, none."""
    normal: dict[str, Settings] = {NORMAL: {}} if NORMAL in current.qos else {}
    return {**normal, **wish.qos}


def _without_lost_defaults(goal: State, current: State, wish: State) -> State:
    """Return `goal` without default QoS that are taken away, and that it does not ask for.

    slurmdbd refuses a list without the default QoS (ESLURM_NO_REMOVE_DEFAULT_QOS).
    """
    key: Key = (DEFAULT_QOS, "")

    def kept(user: str, account: str, settings: Settings, asked_for: Settings) -> dict[Key, str]:
        name = settings.get(key, "")
        is_lost = (
            key not in asked_for
            and name in qos_of(current, user, account)
            and name not in qos_of(goal, user, account)
        )
        return {part: value for part, value in settings.items() if part != key or not is_lost}

    accounts = {}
    for name, account in goal.accounts.items():
        asked_for = wish.accounts[name].settings if name in wish.accounts else {}
        accounts[name] = replace(account, settings=kept("", name, account.settings, asked_for))
    settings: dict[Association, Settings] = {}
    for association, of_it in goal.settings.items():
        if left := kept(*association[:2], of_it, wish.settings.get(association, {})):
            settings[association] = left
    return replace(goal, accounts=accounts, settings=settings)


def _used_qos(state: State) -> set[str]:
    """Return the QoS that some association may use."""
    return {
        name
        for user, of_user in state.users.items()
        for account, _ in of_user.associations
        for name in qos_of(state, user, account)
    }


def _merged(fields: Fields, current: Settings, wish: Settings, prune: bool) -> dict[Key, str]:
    merged = {**({} if prune else current), **wish}
    return {
        key: value for key, value in merged.items() if value not in ("", fields[key[0]].default)
    }


def set_by_hand(current: State, wish: State) -> list[tuple[str, Fields, Key, Settings]]:
    """Return what is set and not wanted of what is listed: (whose, fields, key, all settings)."""
    rows: list[tuple[str, Fields, Settings, Settings]] = [
        (f"QoS {name}", QOS_FIELDS, current.qos.get(name, {}), settings)
        for name, settings in _qos_with_normal(current, wish).items()
    ]
    for name, account in wish.accounts.items():
        if name in current.accounts:
            there = current.accounts[name].settings
            rows.append((f"account {name}", ASSOCIATION_FIELDS, there, account.settings))
    for user, of_user in wish.users.items():
        for account_name, partition in sorted(of_user.associations):
            association = (user, account_name, partition)
            there, asked_for = current.settings.get(association, {}), wish.settings.get(association)
            rows.append((f"{user} in {account_name}", ASSOCIATION_FIELDS, there, asked_for or {}))
    return [
        (whose, fields, key, there)
        for whose, fields, there, asked_for in rows
        for key in there
        if key not in asked_for
    ]


def jobs_without_qos(current: State, goal: State, jobs: Iterable[Job]) -> list[Job]:
    """Return the pending or running jobs that could use their QoS and would not."""
    return [
        job
        for job in jobs
        if job.qos in qos_of(current, job.user, job.account)
        and job.qos not in qos_of(goal, job.user, job.account)
    ]


def takes_qos_away(current: State, goal: State) -> bool:
    """Whether some association may use a QoS in `current` and not in `goal`."""
    return any(
        qos_of(current, user, account) - qos_of(goal, user, account)
        for user, of_user in current.users.items()
        for account, _ in of_user.associations
    )


def _with_parents(names: Iterable[str], state: State) -> set[str]:
    """Return `names` and all accounts above them."""
    accounts: set[str] = set()
    for start in names:
        name = start
        while name in state.accounts and name not in accounts:
            accounts.add(name)
            name = state.accounts[name].parent
    return accounts
