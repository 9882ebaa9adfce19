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

PLAIN = re.compile(r"[A-Za-z0-9_.@+:/$][A-Za-z0-9_.@+:/$-]*")
"""Names that commands may have.

In others sacctmgr and the database find those of somebody else: `x,bob` is two to sacctmgr, and
MariaDB takes an accent, or a blank at the end, for none.
"""
_REMEDIES = {
    "qos": "remove it from qos_table by SQL",
    "accounts": (
        "sacctmgr modify account where name=NAME set description=NAME organization=NAME gives the "
        "account other texts; where a name has it, remove that from acct_table and "
        "acct_coord_table by SQL"
    ),
    "users": "remove it from user_table by SQL",
    "associations": "remove it from {cluster}_assoc_table by SQL",
}

Association = tuple[str, str, str]
"""(user, account, partition); the partition is empty for all partitions."""


@dataclass(frozen=True)
class Account:
    """An account on one cluster."""

    parent: str
    """Empty where sacctmgr can't name it."""
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
    """Where user root has an association, or somebody who is left out."""
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
    left_out: tuple[str, ...] = ()
    """Associations and coordinators that sacctmgr can't name, for people."""
    qos_of_left_out: frozenset[str] = frozenset()
    """QoS that settings of these associations name."""


def lower(text: str) -> str:
    """Return `text` in lower case as SLURM does it: ASCII letters only, whatever the locale."""
    return "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in text)


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
        right = len(row) == width
        if right and what in _REPEATED:
            right = row[_REPEATED[what]] == row.pop()
        if right and what == "accounts":
            right = lower(row[0]) not in accounts
            accounts.add(lower(row[0]))
        if what in _REMEDIES and not right:
            raise RefusedError(
                "slurmdbd has a name or a text with a line end or a bar, so that sacctmgr show "
                f"{READS[what][1]} prints the row {line!r} and others can't be trusted (sacctmgr "
                f"show transactions says whose it is); {_REMEDIES[what].format(cluster=cluster)}; "
                "then run again"
            )
        yield row


def parse(cluster: str, outputs: dict[str, str]) -> State:
    """Return the State that the outputs of READS describe (keys as in READS).

    Names of accounts and users are in lower case: `Bob` is bob to sacctmgr.

    Raises:
        RefusedError: a name or a text there breaks the rows.

    """
    rows = {name: list(_rows(name, cluster, text)) for name, text in outputs.items()}
    texts = {lower(row[0]): (row[1], row[2]) for row in rows["accounts"]}
    coordinators = {
        lower(row[0]): frozenset(filter(None, lower(row[3]).split(","))) for row in rows["accounts"]
    }
    logins = {lower(row[0]): (lower(row[1]), lower(row[2])) for row in rows["users"]}
    accounts: dict[str, Account] = {}
    associations: dict[str, set[tuple[str, str]]] = {}
    settings: dict[Association, Settings] = {}
    accounts_of_root: set[str] = set()
    qos_of_root = ""
    left_out: list[str] = []
    qos_of_left_out: set[str] = set()
    for row in rows["associations"]:
        account, user, parent = lower(row[0]), lower(row[1]), lower(row[3])
        partition, of_row = row[2], parsed(ASSOCIATION_FIELDS, row[4:])
        names = [account, *filter(None, (user, partition))]
        if not all(map(PLAIN.fullmatch, names)):
            left_out.append(f"association {'|'.join(names)!r}")
            # What holds it stays, as it does for user root.
            accounts_of_root |= {account, parent}
            lists = ",".join(of_row.get((key, ""), "") for key in (QOS_LIST, DEFAULT_QOS))
            qos_of_left_out |= {name.lstrip("+-") for name in lists.split(",")}
            continue
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
            of_account = coordinators.get(account, frozenset())
            nameable = frozenset(filter(PLAIN.fullmatch, of_account))
            left_out += [
                f"coordinator {who!r} of {account}" for who in sorted(of_account - nameable)
            ]
            accounts[account] = Account(
                parent if PLAIN.fullmatch(parent) else "",
                *texts.get(account, ("", "")),
                fairshare,
                of_row,
                nameable,
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
        left_out=tuple(left_out),
        qos_of_left_out=frozenset(qos_of_left_out),
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
