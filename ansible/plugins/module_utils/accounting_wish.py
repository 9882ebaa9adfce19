# SPDX-License-Identifier: Apache-2.0
"""What the options of the module `slurm_accounts` ask for, as the State that slurmdbd should have."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypedDict

from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    ASSOCIATION_FIELDS,
    DEFAULT_QOS,
    FAIRSHARE,
    QOS_FIELDS,
    QOS_LIST,
    Key,
    Settings,
    asked,
    tres_of,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    ROOT,
    Account,
    Association,
    State,
    User,
    lower,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

LIMITS = {
    name: limit
    for name, limit in ASSOCIATION_FIELDS.items()
    if name not in (FAIRSHARE, QOS_LIST, DEFAULT_QOS)
}
"""The fields of an association that the option `limits` has."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
# sacctmgr strips quotes, splits its own output at | and its lines at line ends.
BAD_TEXT = re.compile(r"[\"'|\\\x00-\x1f]")


class AssociationOptions(TypedDict):
    """Settings of a user in an account."""

    user: str
    fairshare: int | None
    limits: dict[str, object]
    qos: list[str] | None
    default_qos: str | None


class AccountOptions(TypedDict):
    """An entry of the option accounts."""

    name: str
    parent: str | None
    description: str
    organization: str
    fairshare: int
    users: list[str]
    limits: dict[str, object]
    qos: list[str] | None
    default_qos: str | None
    coordinators: list[str]
    associations: list[AssociationOptions]


class UserOptions(TypedDict):
    """An entry of the option users."""

    name: str
    default_account: str | None
    admin_level: str


class QosOptions(TypedDict):
    """An entry of the option qos."""

    name: str
    limits: dict[str, object]


def checked_name(what: str, name: str) -> str:
    """Return `name` as sacctmgr stores it, or refuse it."""
    if not NAME.fullmatch(name):
        raise RefusedError(
            f'{what} "{name}": only letters, digits and _ . @ - are allowed in it; choose another'
        )
    return lower(name)


def checked_text(account: str, what: str, text: str) -> str:
    """Return free `text` as sacctmgr stores it, or refuse it."""
    if BAD_TEXT.search(text):
        raise RefusedError(
            f"account {account}: {what} holds a quote, a bar, a backslash or a line end, "
            "which sacctmgr does not keep; reword it"
        )
    return lower(text)


@dataclass
class _Tree:
    """The accounts as they are read one by one."""

    accounts: dict[str, Account] = field(default_factory=dict)
    accounts_of: dict[str, list[str]] = field(default_factory=dict)
    """The accounts that list a user, in their order."""
    settings: dict[Association, Settings] = field(default_factory=dict)


def wanted(
    accounts: list[AccountOptions], users: list[UserOptions], qos: Iterable[QosOptions] = ()
) -> State:
    """Return the State that the module's options ask for.

    Raises:
        RefusedError: the options contradict each other.

    """
    tree = _Tree()
    for entry in accounts:
        _add_account(tree, entry)
    above_first = ordered(tree.accounts)
    for name in above_first:
        account = tree.accounts[name]
        above = tree.accounts.get(account.parent)
        if above:
            both = account.coordinators | above.coordinators
            tree.accounts[name] = replace(account, coordinators=both)
    return State(
        registered=True,
        accounts=tree.accounts,
        users=_users(tree, users),
        settings=tree.settings,
        qos=_qos(qos),
    )


def _add_account(tree: _Tree, entry: AccountOptions) -> None:
    name = checked_name("account", entry["name"])
    parent = checked_name("parent account", entry["parent"] or ROOT)
    if name == ROOT or name in tree.accounts:
        why = "belongs to SLURM" if name == ROOT else "is there twice (case does not count)"
        raise RefusedError(f'account "{entry["name"]}" {why}; take it out')
    tree.accounts[name] = Account(
        parent=parent,
        description=checked_text(name, "description", entry["description"]) or name,
        organization=checked_text(name, "organization", entry["organization"])
        or (name if parent == ROOT else parent),
        fairshare=str(entry["fairshare"]),
        settings=_association(f"account {name}", entry),
        coordinators=frozenset(checked_name("coordinator", c) for c in entry["coordinators"]),
    )
    of_account = [checked_name("user", user) for user in entry["users"]]
    for user in of_account:
        tree.accounts_of.setdefault(user, []).append(name)
    for association in entry["associations"]:
        user = checked_name("user", association["user"])
        if user not in of_account:
            raise RefusedError(
                f"account {name}: {user} has limits and is none of its users; add {user} to them"
            )
        tree.settings[user, name, ""] = _association(
            f"{user} in {name}", association, association["fairshare"]
        )


def _association(
    who: str, entry: "AccountOptions | AssociationOptions", fairshare: int | None = None
) -> dict[Key, str]:
    further: dict[str, object] = {}
    if fairshare is not None:
        further[FAIRSHARE] = fairshare
    if entry["qos"] is not None:
        further[QOS_LIST] = [checked_name("QoS", name) for name in entry["qos"]]
    if entry["default_qos"] is not None:
        further[DEFAULT_QOS] = checked_name("QoS", entry["default_qos"])
    return asked(who, LIMITS, entry["limits"]) | asked(who, ASSOCIATION_FIELDS, further)


def _qos(entries: Iterable[QosOptions]) -> dict[str, Settings]:
    qos: dict[str, Settings] = {}
    for entry in entries:
        name = checked_name("QoS", entry["name"])
        if name in qos:
            raise RefusedError(f'QoS "{name}" is there twice (case does not count); keep one')
        settings = asked(f"QoS {name}", QOS_FIELDS, entry["limits"])
        preempted = settings.get(("Preempt", ""))
        if preempted is not None:
            settings["Preempt", ""] = lower(preempted)
        qos[name] = settings
    return qos


def _users(tree: _Tree, users: list[UserOptions]) -> dict[str, User]:
    said = {checked_name("user", entry["name"]): entry for entry in users}
    wish = {}
    for user, of_user in tree.accounts_of.items():
        of_options = said.get(user)
        default = lower((of_options and of_options["default_account"]) or of_user[0])
        if user == ROOT:
            raise RefusedError("user root belongs to SLURM; take it out of the accounts' users")
        if default not in of_user:
            raise RefusedError(
                f"user {user}: default account {default} does not list {user}; "
                f"add {user} to its users or choose one of {', '.join(of_user)}"
            )
        wish[user] = User(
            default_account=default,
            admin_level=of_options["admin_level"] if of_options else "none",
            associations=frozenset((account, "") for account in of_user),
        )
    return wish


def ordered(accounts: dict[str, Account]) -> list[str]:
    """Return the names of `accounts`, parents first.

    Raises:
        RefusedError: a parent is missing or the accounts form a circle.

    """
    done: list[str] = []
    left = list(accounts)
    while left:
        ready = [name for name in left if accounts[name].parent in (ROOT, "", *done)]
        if not ready:
            name = left[0]
            raise RefusedError(
                f"account {name}: its parent {accounts[name].parent} is no account or lies "
                "below it; list the parent, or root"
            )
        done += ready
        left = [name for name in left if name not in ready]
    return done


def unknown_tres(state: State, known: frozenset[str]) -> dict[str, str]:
    """Return each TRES that `state` limits and slurmdbd does not know, with one that limits it."""
    unknown: dict[str, str] = {}
    for name, settings in state.qos.items():
        for tres in tres_of(QOS_FIELDS, settings) - known:
            unknown.setdefault(tres, f"QoS {name}")
    for name, account in state.accounts.items():
        for tres in tres_of(ASSOCIATION_FIELDS, account.settings) - known:
            unknown.setdefault(tres, f"account {name}")
    for (user, name, _), settings in state.settings.items():
        for tres in tres_of(ASSOCIATION_FIELDS, settings) - known:
            unknown.setdefault(tres, f"{user} in {name}")
    return unknown


def without_tres(state: State, unknown: Iterable[str]) -> State:
    """Return `state` without the limits of some TRES."""
    gone = set(unknown)

    def kept(settings: Settings) -> dict[Key, str]:
        return {key: value for key, value in settings.items() if key[1] not in gone}

    return replace(
        state,
        qos={name: kept(settings) for name, settings in state.qos.items()},
        accounts={
            name: replace(account, settings=kept(account.settings))
            for name, account in state.accounts.items()
        },
        settings={key: kept(settings) for key, settings in state.settings.items()},
    )
