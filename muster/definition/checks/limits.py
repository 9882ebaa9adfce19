"""Checks of QoS and limits: what SLURM takes without a word and then never applies."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ListedTwice, Spelling, UnknownName, at, table
from muster.definition.checks.slurm import parameter_name, parameter_words
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.schema.limits import Association
from muster.definition.schema.node_sets import Partition
from muster.definition.yaml_file import KeyPath

NORMAL = "normal"
"""The QoS that SLURM makes itself, and that accounts at the top allow."""
_LISTS = at(
    "accounts.<name>.qos.[]",
    "accounts.<name>.associations.<name>.qos.[]",
    "partitions.<name>.allow_qos.[]",
    "partitions.<name>.deny_qos.[]",
    "qos.<name>.preempt.[]",
)
_NAMED = at(
    "accounts.<name>.default_qos",
    "accounts.<name>.associations.<name>.default_qos",
    "partitions.<name>.qos",
)


def _named(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for values in (_LISTS, _NAMED):
        yield from ((path, name) for path, name in values(d) if name != NORMAL)


def _coordinators(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    # Others may be in the directory.
    if d.cluster.users.directory is None:
        yield from at("accounts.<name>.coordinators.[]")(d)


# fmt: off
table(
    Spelling("qos-name",
        "A name of a QoS that sacctmgr stores otherwise, or can't take",
        at("qos.<name>"), patterns.QOS_NAME,
        '"{value}" can\'t be the name of a QoS',
        "use up to 40 small letters, digits, hyphens, dots and underscores, a letter first"),
    UnknownName("qos-unknown",
        "A QoS that is not there",
        _named, "qos.<name>",
        'no QoS "{value}"',
        "describe it below `qos`"),
    ListedTwice("qos-twice",
        "A list that has a QoS twice",
        _LISTS),
    UnknownName("coordinator-unknown",
        "A coordinator who is not there",
        _coordinators, "users.people.<name>",
        'nobody has the login "{value}"',
        "add the person to users.people"),
    ListedTwice("coordinator-twice",
        "An account that lists a coordinator twice",
        at("accounts.<name>.coordinators.[]")),
)
# fmt: on


def _users(d: Definition) -> set[str]:
    return {user for account in d.cluster.accounts.values() for user in account.users}


@check("coordinator-without-account")
def coordinator_without_account(d: Definition) -> Iterator[Finding]:
    """A coordinator who is in no account: sacctmgr knows nobody else."""
    people, directory = d.cluster.users.people, d.cluster.users.directory
    for name, account in d.cluster.accounts.items():
        for index, coordinator in enumerate(account.coordinators):
            # Who is not there at all has an error already; a directory may have any login.
            is_somebody = coordinator in people or directory is not None
            if is_somebody and coordinator not in _users(d):
                yield Finding(
                    ("accounts", name, "coordinators", index),
                    f"{coordinator} is in no account, and SLURM knows only users of accounts",
                    f"add {coordinator} to accounts.{name}.users, or to another account",
                )


@check("admin-level-without-account")
def admin_level_without_account(d: Definition) -> Iterator[Finding]:
    """An operator or administrator of SLURM who is in no account: sacctmgr knows nobody else."""
    for name, person in d.cluster.users.people.items():
        if person.admin_level != "none" and name not in _users(d):
            yield Finding(
                ("users", "people", name, "admin_level"),
                f"{name} is in no account, and SLURM knows only users of accounts",
                f"add {name} to `users` of an account, or take `admin_level` out",
            )


@check("association-of-others")
def association_of_others(d: Definition) -> Iterator[Finding]:
    """Limits of a person in an account that does not list the person."""
    for name, account in d.cluster.accounts.items():
        for user in account.associations:
            if user not in account.users:
                yield Finding(
                    ("accounts", name, "associations", user),
                    f"{user} is no user of this account, so the limits are nobody's",
                    f"add {user} to accounts.{name}.users, or take it out",
                )


@check("qos-preempts-in-circle")
def qos_preempts_in_circle(d: Definition) -> Iterator[Finding]:
    """QoS that preempt each other: their jobs would take the nodes from each other for ever."""
    left = {name: set(qos.preempt) & d.cluster.qos.keys() for name, qos in d.cluster.qos.items()}
    while left:
        harmless = [name for name, below in left.items() if not below & left.keys()]
        ring = [] if harmless else _ring(left)
        if ring:
            several = f"{' and '.join(ring)} preempt each other"
            yield Finding(
                ("qos", ring[0], "preempt"),
                several if len(ring) > 1 else f"{ring[0]} preempts itself",
                "leave the QoS that matters less out of `preempt` of the other",
            )
        for name in harmless or ring:
            del left[name]


def _ring(left: dict[str, set[str]]) -> list[str]:
    """A circle among QoS of which each preempts one of them, in the order of the definition."""
    chain: list[str] = []
    here = next(iter(left))
    while here not in chain:
        chain.append(here)
        here = next(name for name in left if name in left[here])
    ring = chain[chain.index(here) :]
    return [name for name in left if name in ring]


@check("qos-preemption-off")
def qos_preemption_off(d: Definition) -> Iterator[Finding]:
    """A QoS that preempts others, and a PreemptType by which none does."""
    types = parameter_words(d, "preempttype")
    if types and types != {"preempt/qos"}:
        for name, qos in d.cluster.qos.items():
            if qos.preempt:
                yield Finding(
                    ("qos", name, "preempt"),
                    f"with {parameter_name(d, 'preempttype')}: {', '.join(types)} below `slurm` no "
                    "QoS preempts another",
                    "take PreemptType and PreemptMode out there",
                )


_PRIORITY_OFF = (("prioritytype", "priority/basic"), ("priorityweightqos", "0"))


@check("qos-priority-off")
def qos_priority_off(d: Definition) -> Iterator[Finding]:
    """A QoS with a priority, and parameters of SLURM by which it counts nothing."""
    for parameter, value in _PRIORITY_OFF:
        if parameter_words(d, parameter) == {value}:
            given = parameter_name(d, parameter)
            for name, qos in d.cluster.qos.items():
                if qos.priority:
                    yield Finding(
                        ("qos", name, "priority"),
                        f"with {given}: {value} below `slurm` it counts nothing",
                        f"take {given} out there, or `priority` here",
                    )


def accounts_above(d: Definition, name: str | None) -> Iterator[tuple[KeyPath, Association]]:
    """An account and those above it, upwards."""
    seen: set[str] = set()
    while name in d.cluster.accounts and name not in seen:
        seen.add(name)
        yield ("accounts", name), d.cluster.accounts[name]
        name = d.cluster.accounts[name].parent


def allowed(d: Definition, account: str | None, own: list[str] | None = None) -> list[str]:
    """The QoS that jobs may use, from the list of an association or the nearest one above."""
    seen: set[str] = set()
    while not own and account in d.cluster.accounts and account not in seen:
        seen.add(account)
        own = d.cluster.accounts[account].qos
        account = d.cluster.accounts[account].parent
    return own or [NORMAL]


def associations(d: Definition) -> Iterator[tuple[KeyPath, str, Association]]:
    """Accounts, and the settings of their users, with the account's name."""
    for name, account in d.cluster.accounts.items():
        yield ("accounts", name), name, account
        for user, association in account.associations.items():
            yield ("accounts", name, "associations", user), name, association


@check("qos-list-empty")
def qos_list_empty(d: Definition) -> Iterator[Finding]:
    """An empty list of QoS: to SLURM that is no list, and the one of the account above holds."""
    for path, account, association in associations(d):
        if association.qos == []:
            yield Finding(
                (*path, "qos"),
                "SLURM takes an empty list for none, so that jobs may use "
                f"{', '.join(allowed(d, account))}",
                "list the QoS that they may use, or leave `qos` out",
            )


def takes(partition: Partition, qos: str) -> bool:
    """Whether a partition takes jobs of a QoS."""
    return (not partition.allow_qos or qos in partition.allow_qos) and qos not in partition.deny_qos


def usable(d: Definition, qos: str) -> list[Partition]:
    """The partitions that take jobs of a QoS, or have it as theirs."""
    return [
        partition
        for partition in d.cluster.partitions.values()
        if partition.qos == qos or takes(partition, qos)
    ]


def qos_of_accounts(d: Definition) -> dict[str, list[str]]:
    """What `allowed` says of each account; for all of them that takes less time."""
    accounts = d.cluster.accounts
    known: dict[str, list[str]] = {}
    for name in accounts:
        chain: dict[str, None] = {}
        here: str | None = name
        while here in accounts and here not in known and here not in chain:
            chain[here] = None
            here = None if accounts[here].qos else accounts[here].parent
        inherited = known.get(here or "", [NORMAL])
        for one in reversed(chain):
            inherited = known[one] = accounts[one].qos or inherited
    return known


def qos_of_users(d: Definition) -> Iterator[tuple[str, str, list[str]]]:
    """Account, user and the QoS that the user's jobs may use there."""
    of_accounts = qos_of_accounts(d)
    for name, account in d.cluster.accounts.items():
        for user in account.users:
            own = account.associations.get(user)
            yield name, user, (own and own.qos) or of_accounts[name]


def chosen(d: Definition) -> set[str]:
    """The QoS that some user may choose; without any user those that accounts allow."""
    of_users = {name for _, _, names in qos_of_users(d) for name in names}
    if of_users:
        return of_users
    of_accounts = qos_of_accounts(d)
    return {name for _, account, one in associations(d) for name in one.qos or of_accounts[account]}


def of_partitions(d: Definition) -> set[str]:
    """The QoS that partitions have as theirs."""
    return {partition.qos for partition in d.cluster.partitions.values() if partition.qos}


def has_unknown_qos(d: Definition) -> bool:
    """Whether a list has a QoS that is not there: what follows from that is no further error."""
    return any(name not in d.cluster.qos for _, name in _named(d))


@check("default-qos-not-allowed")
def default_qos_not_allowed(d: Definition) -> Iterator[Finding]:
    """A default QoS that the account does not allow: SLURM refuses it."""
    for path, account, association in associations(d):
        names, default = allowed(d, account, association.qos), association.default_qos
        # One that is not there at all has an error already.
        if default not in names and default in {*d.cluster.qos, NORMAL}:
            yield Finding(
                (*path, "default_qos"),
                f"{default} is not allowed here, only {', '.join(names)} is",
                f"add {default} to `qos`, or choose one of them",
            )


def _default_above(d: Definition, account: str | None) -> str | None:
    """The default QoS of an account, or of the nearest one above that has one."""
    return next((one.default_qos for _, one in accounts_above(d, account) if one.default_qos), None)


def default_of(d: Definition, account: str, user: str, names: list[str]) -> str:
    """The QoS of a user's jobs that name none; `names`: the QoS that they may use."""
    own = d.cluster.accounts[account].associations.get(user)
    default = (own and own.default_qos) or _default_above(d, account)
    return default or (names[0] if len(names) == 1 else NORMAL)


def _lists_of_users(d: Definition) -> Iterator[KeyPath]:
    """The accounts whose list of QoS, or default one, is the first that some user has, upwards."""
    for name, account in d.cluster.accounts.items():
        own = [account.associations.get(user) for user in account.users]
        if any(one is None or not (one.qos or one.default_qos) for one in own):
            levels = accounts_above(d, name)
            yield from [path for path, one in levels if one.qos or one.default_qos][:1]


@check("default-qos-missing")
def default_qos_missing(d: Definition) -> Iterator[Finding]:
    """A list of several QoS without `normal` and no default: jobs that name none are refused."""
    lists = set(_lists_of_users(d))
    for path, account, association in associations(d):
        if not association.qos or association.default_qos is not None:
            continue
        if len(path) == 2 and path not in lists:
            continue
        default = _default_above(d, account)
        used = default or NORMAL
        # One alone is the default to SLURM (assoc_mgr_get_default_qos_info in assoc_mgr.c), if none
        # of the accounts above has another.
        several = len(association.qos) > 1 or default is not None
        if several and used not in association.qos:
            yield Finding(
                (*path, "qos"),
                f"jobs that name no QoS use {used}, which is not in this list",
                f"add it, or say `default_qos: {association.qos[0]}`",
            )


@check("allow-qos-and-deny-qos")
def allow_qos_and_deny_qos(d: Definition) -> Iterator[Finding]:
    """A partition with both lists: SLURM does not look at the second."""
    for name, partition in d.cluster.partitions.items():
        if partition.allow_qos and partition.deny_qos:
            yield Finding(
                ("partitions", name, "deny_qos"),
                "with `allow_qos` SLURM ignores it",
                "take one of the two out",
            )


def _has_limits(d: Definition) -> bool:
    """Whether anything is limited below an account."""
    return any(
        getattr(association, key) is not None
        for _, _, association in associations(d)
        for key in Association.model_fields
        if key not in ("fairshare", "qos", "default_qos")
    )


@check("limits-not-enforced")
def limits_not_enforced(d: Definition) -> Iterator[Finding]:
    """Limits or QoS, and an AccountingStorageEnforce by which SLURM looks at none."""
    words = parameter_words(d, "accountingstorageenforce")
    if not words or "all" in words:
        return
    missing = []
    if d.cluster.qos and "qos" not in words:
        missing.append("qos")
    if (d.cluster.qos or _has_limits(d)) and not {"limits", "safe"} & words:
        missing.append("limits")
    if missing:
        yield Finding(
            ("slurm", parameter_name(d, "accountingstorageenforce")),
            f"without {' and '.join(missing)} SLURM enforces none of what `qos` and `accounts` say",
            f"take it out, or add {','.join(missing)}",
        )
