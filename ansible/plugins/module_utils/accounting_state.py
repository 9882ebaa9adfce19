# SPDX-License-Identifier: Apache-2.0
"""What slurmdbd has of a cluster, as data: accounts, users, associations and QoS."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    ASSOCIATION_FIELDS,
    DEFAULT_QOS,
    FAIRSHARE,
    QOS_FIELDS,
    QOS_LIST,
    Settings,
    parsed,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

ROOT = "root"
NORMAL = "normal"
"""The QoS that slurmdbd makes itself, and gives to account root."""

# The descriptions of accounts and the partitions of associations are texts of coordinators too, and
# sacctmgr prints their line ends as they are. So the last field of these rows repeats an earlier
# one, under the other name that sacctmgr has for it: no text can make believable rows of it.
READS = {
    "clusters": ["show", "cluster", "format=cluster"],
    "tres": ["show", "tres", "format=type,name"],
    "qos": ["show", "qos", "format=" + ",".join(["name", *QOS_FIELDS])],
    "accounts": [
        "show",
        "account",
        "withcoordinators",
        "format=account,description,organization,coordinators,acct",
    ],
    "users": [
        "show",
        "user",
        "where",
        "cluster={cluster}",
        "format=user,defaultaccount,adminlevel",
    ],
    # Own limits alone, and QoS that were added (`qos+=long`) as such: else those of the accounts
    # above are printed as theirs, and an added one as the whole list (sacctmgr(1)).
    "associations": [
        "show",
        "association",
        "where",
        "cluster={cluster}",
        "woplimits",
        "withrawqoslevel",
        "format="
        + ",".join(["account", "user", "partition", "parentname", *ASSOCIATION_FIELDS, "part"]),
    ],
}
"""What is read, as arguments of `sacctmgr -nP`."""

_REPEATED = {"accounts": 0, "associations": 2}
"""Which field the last one repeats."""

# In others sacctmgr and the database find those of somebody else: `x,bob` is two to sacctmgr, and
# MariaDB takes an accent, or a blank at the end, for none.
_NAME = re.compile(r"[A-Za-z0-9_.@+:/$][A-Za-z0-9_.@+:/$-]*")
_REMEDIES = {
    "qos": "delete it (sacctmgr delete qos where name=NAME)",
    "accounts": (
        "give the account another text (sacctmgr modify account where name=NAME set "
        "description=NAME organization=NAME) or delete it (sacctmgr delete account where "
        "name=NAME; `show` in place of `delete` prints what that takes)"
    ),
    "users": (
        "take all users out of its account (sacctmgr delete user where account=ACCOUNT "
        "cluster={cluster}), which the next run adds again if they are in the definition; `where "
        "name=` may take others"
    ),
}
_REMEDIES["associations"] = _REMEDIES["users"]

Association = tuple[str, str, str]
"""(user, account, partition); the partition is empty for all partitions."""


@dataclass(frozen=True)
class Account:
    """An account on one cluster."""

    parent: str
    description: str
    organization: str
    fairshare: str
    settings: Settings = field(default_factory=dict)
    """Limits and QoS of its association, by ASSOCIATION_FIELDS."""
    coordinators: frozenset[str] = frozenset()
    """Who may manage it, those of the accounts above included."""


@dataclass(frozen=True)
class User:
    """A user with at least one association on the cluster."""

    default_account: str
    admin_level: str
    associations: frozenset[tuple[str, str]]
    """(account, partition); the partition is empty for all partitions."""


@dataclass(frozen=True)
class State:
    """What slurmdbd has, or should have, of one cluster; without account and user root."""

    registered: bool = False
    accounts: dict[str, Account] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    accounts_of_root: frozenset[str] = frozenset()
    """Where user root has an association."""
    settings: dict[Association, Settings] = field(default_factory=dict)
    """Limits, QoS and shares of associations of users, by ASSOCIATION_FIELDS; none are left out."""
    qos: dict[str, Settings] = field(default_factory=dict)
    """Those of all clusters of the slurmdbd, by QOS_FIELDS."""
    qos_of_root: str = ""
    """QoS that account root allows, parted by commas."""
    has_other_clusters: bool = False
    """Whether the slurmdbd has other clusters too, whose QoS are among these."""
    tres: frozenset[str] = frozenset()
    """The TRES that can have a limit."""


def lower(text: str) -> str:
    """Return `text` in lower case as SLURM does it: ASCII letters only, whatever the locale."""
    return "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in text)


def _refused(what: str, cluster: str, row: str) -> RefusedError:
    return RefusedError(
        f"sacctmgr show {READS[what][1]} prints {row!r}, a row that can't be trusted: a "
        "coordinator or an operator may have put a line end into a text, or chosen a name that "
        "sacctmgr takes for others (sacctmgr show transactions says who it was); "
        f"{_REMEDIES[what].format(cluster=cluster)}, and run again"
    )


def _rows(what: str, cluster: str, text: str) -> Iterator[list[str]]:
    """Yield the rows of an output of READS, without the field that is repeated.

    Raises:
        RefusedError: a name or a text breaks them.

    """
    width = READS[what][-1].count(",") + 1
    accounts: set[str] = set()
    for line in filter(None, text.split("\n")):
        row = line.split("|")
        if what == "accounts" and len(row) > width:
            # A description may have bars.
            row[1:-3] = ["|".join(row[1:-3])]
        right, names = len(row) == width, row[:1]
        if right and what in _REPEATED:
            right = row[_REPEATED[what]] == row.pop()
        if right and what == "accounts":
            right = lower(row[0]) not in accounts
            accounts.add(lower(row[0]))
            names += filter(None, row[-1].split(","))
        elif what == "associations":
            names += filter(None, row[1:3])
        if what in _REMEDIES and not (right and all(map(_NAME.fullmatch, names))):
            raise _refused(what, cluster, line)
        yield row


def parse(cluster: str, outputs: dict[str, str]) -> State:
    """Return the State that the outputs of READS describe (keys as in READS).

    Raises:
        RefusedError: a name or a text there can't be read.

    """
    rows = {name: list(_rows(name, cluster, text)) for name, text in outputs.items()}
    texts = {row[0]: (row[1], row[2]) for row in rows["accounts"]}
    coordinators = {row[0]: frozenset(filter(None, row[3].split(","))) for row in rows["accounts"]}
    logins = {row[0]: (row[1], lower(row[2])) for row in rows["users"]}
    accounts: dict[str, Account] = {}
    associations: dict[str, set[tuple[str, str]]] = {}
    settings: dict[Association, Settings] = {}
    accounts_of_root: set[str] = set()
    qos_of_root = ""
    spelt: dict[str, str] = {}
    for account, user, partition, parent, *values in rows["associations"]:
        # `Bob` is bob to sacctmgr.
        if spelt.setdefault(lower(user), user) != user:
            raise _refused("associations", cluster, f"{account}|{user}")
        of_row = parsed(ASSOCIATION_FIELDS, values)
        if user == ROOT:
            accounts_of_root.add(account)
        elif user:
            associations.setdefault(user, set()).add((account, partition))
            if of_row:
                settings[user, account, partition] = of_row
        elif account == ROOT:
            qos_of_root = of_row.get((QOS_LIST, ""), "")
        else:
            fairshare = of_row.pop((FAIRSHARE, ""), ASSOCIATION_FIELDS[FAIRSHARE].default)
            accounts[account] = Account(
                parent,
                *texts.get(account, ("", "")),
                fairshare,
                of_row,
                coordinators.get(account, frozenset()),
            )
    users = {
        user: User(*logins.get(user, ("", "none")), frozenset(pairs))
        for user, pairs in associations.items()
    }
    clusters = {lower(row[0]) for row in rows["clusters"]}
    return State(
        registered=lower(cluster) in clusters,
        accounts=accounts,
        users=users,
        accounts_of_root=frozenset(accounts_of_root),
        settings=settings,
        qos={row[0]: parsed(QOS_FIELDS, row[1:]) for row in rows["qos"]},
        qos_of_root=qos_of_root,
        has_other_clusters=bool(clusters - {lower(cluster)}),
        tres=frozenset("/".join(filter(None, row)) for row in rows["tres"]),
    )


def qos_of(state: State, user: str, account: str) -> frozenset[str]:
    """Return the QoS that jobs of a user in an account may use: the nearest list upwards.

    A list of changes (`+long`, which `sacctmgr modify user set qos+=long` makes) adds to the list
    above or takes from it.
    """
    lists = [state.settings.get((user, account, ""), {}).get((QOS_LIST, ""), "")]
    seen: set[str] = set()
    while not _is_whole(lists[-1]) and account in state.accounts and account not in seen:
        seen.add(account)
        lists.append(state.accounts[account].settings.get((QOS_LIST, ""), ""))
        account = state.accounts[account].parent
    if not _is_whole(lists[-1]):
        lists.append(state.qos_of_root)
    names: set[str] = set()
    for entry in filter(None, ",".join(reversed(lists)).split(",")):
        if entry.startswith("-"):
            names.discard(entry[1:])
        else:
            names.add(entry.removeprefix("+"))
    return frozenset(names & state.qos.keys())


def _is_whole(text: str) -> bool:
    return text != "" and not text.startswith(("+", "-"))


def without_qos(settings: Settings, gone: set[str]) -> dict[tuple[str, str], str]:
    """Return `settings` of a QoS or an association without the names of QoS that are removed."""
    kept: dict[tuple[str, str], str] = {}
    for (name, part), value in settings.items():
        if name in (QOS_LIST, DEFAULT_QOS, "Preempt"):
            text = ",".join(name for name in value.split(",") if name.lstrip("+-") not in gone)
        else:
            text = value
        if text:
            kept[name, part] = text
    return kept
