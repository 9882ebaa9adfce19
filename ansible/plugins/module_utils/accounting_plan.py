# SPDX-License-Identifier: Apache-2.0
"""The commands of sacctmgr that lead from the State that slurmdbd has to the one to reach."""

from dataclasses import replace

from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    ASSOCIATION_FIELDS,
    DEFAULT_QOS,
    QOS_FIELDS,
    QOS_LIST,
    Key,
    Settings,
    arguments,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    State,
    qos_of,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import ordered

# Names in one command, so that its arguments stay well below the kernel's limit.
NAMES_PER_COMMAND = 200


def plan(cluster: str, current: State, goal: State) -> list[list[str]]:
    """Return the sacctmgr commands (argument lists) that lead from `current` to `goal`.

    The order matters: QoS before what names them; a default QoS goes before the list loses it;
    parents before children; an account before its users; a user's new default account before the
    old one goes (22.05 removes it and leaves the user without any); a QoS goes last, when no list
    names it (22.05 joins its neighbours in a list to one number).
    """
    on = f"cluster={cluster}"
    commands = [] if current.registered else [["add", "cluster", cluster]]
    commands += _qos_commands(current, goal)
    without = _without_lost_defaults(current, goal)
    commands += [
        ["modify", "account", "where", f"name={name}", on, "set", f"{DEFAULT_QOS}=-1"]
        for name, account in without.accounts.items()
        if account.settings != current.accounts[name].settings
    ]
    commands += _settings_of_users(on, current, without)
    current = without
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


def _without_lost_defaults(current: State, goal: State) -> State:
    """Return `current` without the default QoS that end, and that lists of `goal` don't have.

    24.11 refuses a list without the default QoS of the account or one of its users, and a default
    QoS that is not in the list yet (_foreach_check_default_qos in as_mysql_assoc.c). One that ends
    with the association's own list goes in one command with it.
    """
    key: Key = (DEFAULT_QOS, "")

    def kept(user: str, account: str, settings: Settings, wanted: Settings) -> Settings:
        default, another = settings.get(key), wanted.get(key)
        is_apart = another is not None or (QOS_LIST, "") not in settings
        if default in (None, another, *qos_of(goal, user, account)) or not is_apart:
            return settings
        return {part: value for part, value in settings.items() if part != key}

    accounts, associations = dict(current.accounts), dict(current.settings)
    for name, account in goal.accounts.items():
        if name in accounts:
            settings = kept("", name, accounts[name].settings, account.settings)
            accounts[name] = replace(accounts[name], settings=settings)
    for association, settings in current.settings.items():
        user, name, _ = association
        if name in goal.accounts:
            wanted = goal.settings.get(association, {})
            associations[association] = kept(user, name, settings, wanted)
    return replace(current, accounts=accounts, settings=associations)


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
