# SPDX-License-Identifier: Apache-2.0
"""From what slurmdbd has to what it should have: which State to reach, and by which commands."""

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
    arguments,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    NORMAL,
    Association,
    State,
    qos_of,
    without_qos,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import ordered

CLOSED: Key = ("GrpSubmitJobs", "")
"""Of a QoS: 0 lets no new job in, while those that are there go on."""
# Names in one command, so that its arguments stay well below the kernel's limit.
NAMES_PER_COMMAND = 200


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
    """Return the QoS that are there and not wanted, but for SLURM's own."""
    return set(current.qos) - set(wish.qos) - {NORMAL}


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
            users[user] = replace(existing, default_account=default, associations=frozenset(extra))
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
    removed -= draining
    accounts = dict(goal.accounts)
    for name, account in wish.accounts.items():
        before = current.accounts.get(name)
        merged = _merged(
            ASSOCIATION_FIELDS, before.settings if before else {}, account.settings, prune
        )
        coordinators = account.coordinators
        if before and not prune:
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
    closed = {name for name in wish.qos if current.qos.get(name, {}).get(CLOSED) == "0"}
    # One that was drained and comes back takes jobs again.
    opened = closed - _used_qos(current) if closed else closed
    for name, wanted in wish.qos.items():
        there = current.qos.get(name, {})
        if name in opened:
            there = {key: value for key, value in there.items() if key != CLOSED}
        qos[name] = _merged(QOS_FIELDS, there, wanted, prune)
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
        qos={name: without_qos(settings, removed) for name, settings in qos.items()},
    )
    return _without_lost_defaults(goal, current, wish)


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
        for name, settings in wish.qos.items()
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


def plan(cluster: str, current: State, goal: State) -> list[list[str]]:
    """Return the sacctmgr commands (argument lists) that lead from `current` to `goal`.

    The order matters: QoS before what names them; parents before children; an account before its
    users; a user's new default account before the old one goes (22.05 removes it and leaves the
    user without any); a QoS goes last, when no list names it (22.05 joins its neighbours in a list
    to one number).
    """
    on = f"cluster={cluster}"
    commands = [] if current.registered else [["add", "cluster", cluster]]
    commands += _qos_commands(current, goal)
    for name in ordered(goal.accounts):
        account, existing = goal.accounts[name], current.accounts.get(name)
        settings = [
            f"{key}={getattr(account, key)}"
            for key in ("parent", "fairshare", "description", "organization")
            if existing is None or getattr(existing, key) != getattr(account, key)
        ]
        before = existing.settings if existing else {}
        settings += arguments(ASSOCIATION_FIELDS, before, account.settings)
        if existing is None:
            commands.append(["add", "account", f"name={name}", on, *settings])
        elif settings:
            commands.append(["modify", "account", "where", f"name={name}", on, "set", *settings])

    commands += _associations_to_add(on, current, goal)
    commands += _settings_of_users(on, current, goal)
    for keyword, attribute, where in (
        ("defaultaccount", "default_account", [on]),
        ("adminlevel", "admin_level", []),
    ):
        changed: dict[str, list[str]] = {}
        for user, wish in sorted(goal.users.items()):
            # A user made just now has the wanted default account, and no rights.
            first = current.users.get(user, replace(wish, admin_level="none"))
            if getattr(first, attribute) != getattr(wish, attribute):
                changed.setdefault(getattr(wish, attribute), []).append(user)
        for value, names in changed.items():
            commands += [
                ["modify", "user", "where", f"name={some}", *where, "set", f"{keyword}={value}"]
                for some in _batches(names)
            ]
    commands += _coordinators(current, goal)

    # One by one: 22.05 refuses a list of users of whom one has a default account.
    for user, there in sorted(current.users.items()):
        if user not in goal.users:
            commands.append(["delete", "user", "where", f"name={user}", on])
            continue
        for of_user, partition in sorted(there.associations - goal.users[user].associations):
            which = [f"account={of_user}"] + ([f"partition={partition}"] if partition else [])
            commands.append(["delete", "user", "where", f"name={user}", on, *which])
    commands += [
        ["delete", "account", "where", f"name={name}", on]
        for name in reversed(ordered(current.accounts))
        if name not in goal.accounts
    ]
    gone = sorted(set(current.qos) - set(goal.qos))
    return commands + [["delete", "qos", "where", f"name={name}"] for name in gone]


def _qos_commands(current: State, goal: State) -> list[list[str]]:
    """Return the commands that add and change QoS, those that are preempted by others first."""
    commands = []
    there = dict(current.qos)
    left = sorted(set(goal.qos) - set(there))
    while left:
        ready = [name for name in left if _preempted(goal.qos[name]) <= there.keys()]
        for name in ready or left[:1]:
            # In a circle the one that is made first gets its list when all are there.
            added = {key: value for key, value in goal.qos[name].items() if ready or key != _LIST}
            settings = arguments(QOS_FIELDS, {}, added)
            commands.append(["add", "qos", f"name={name}", *settings])
            there[name] = added
            left.remove(name)
    for name, wish in sorted(goal.qos.items()):
        if settings := arguments(QOS_FIELDS, there[name], wish):
            commands.append(["modify", "qos", "where", f"name={name}", "set", *settings])
    return commands


_LIST: Key = ("Preempt", "")


def _preempted(settings: Settings) -> set[str]:
    return set(filter(None, settings.get(_LIST, "").split(",")))


def _settings_of_users(on: str, current: State, goal: State) -> list[list[str]]:
    """Return the commands that change limits of associations, equal changes in one command."""
    changed: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for user, of_user in sorted(goal.users.items()):
        for account, partition in sorted(of_user.associations):
            association = (user, account, partition)
            settings = arguments(
                ASSOCIATION_FIELDS,
                current.settings.get(association, {}),
                goal.settings.get(association, {}),
            )
            if settings:
                changed.setdefault((account, partition, tuple(settings)), []).append(user)
    commands = []
    for (account, partition, same), names in changed.items():
        which = [on, f"account={account}"] + ([f"partition={partition}"] if partition else [])
        commands += [
            ["modify", "user", "where", f"name={some}", *which, "set", *same]
            for some in _batches(names)
        ]
    return commands


def _coordinators(current: State, goal: State) -> list[list[str]]:
    """Return the commands that make coordinators and end it, at the uppermost of their accounts.

    A coordinator of an account is one of the accounts below too, and shown there.
    """
    commands = []
    for name in ordered(goal.accounts):
        account, existing = goal.accounts[name], current.accounts.get(name)
        had = existing.coordinators if existing else frozenset()
        above = goal.accounts.get(account.parent)
        above_had = current.accounts.get(account.parent)
        more = account.coordinators - had - (above.coordinators if above else frozenset())
        less = had - account.coordinators - (above_had.coordinators if above_had else frozenset())
        for verb, names in (("add", more), ("delete", less)):
            if names:
                who = ",".join(sorted(names))
                commands.append([verb, "coordinator", f"account={name}", f"names={who}"])
    return commands


def _associations_to_add(on: str, current: State, goal: State) -> list[list[str]]:
    """Return the commands that add associations, many users in one command."""
    first: dict[str, list[str]] = {}
    more: dict[str, list[str]] = {}
    for user, wish in sorted(goal.users.items()):
        missing = set(wish.associations)
        if user in current.users:
            missing -= current.users[user].associations
        else:
            # The first association of a user is the default one, or the user has none.
            missing.discard((wish.default_account, ""))
            first.setdefault(wish.default_account, []).append(user)
        for account, _ in sorted(missing):
            more.setdefault(account, []).append(user)
    commands = []
    for account, names in first.items():
        settings = [f"account={account}", on, f"defaultaccount={account}"]
        commands += [["add", "user", f"name={some}", *settings] for some in _batches(names)]
    for account, names in more.items():
        commands += [
            ["add", "user", f"name={some}", f"account={account}", on] for some in _batches(names)
        ]
    return commands


def _batches(names: list[str]) -> list[str]:
    """Return `names` joined by commas, NAMES_PER_COMMAND at a time."""
    return [
        ",".join(names[start : start + NAMES_PER_COMMAND])
        for start in range(0, len(names), NAMES_PER_COMMAND)
    ]
