"""Checks of SLURM's accounts: the tree, and the people in it."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ListedTwice, Spelling, UnknownName, at, table
from muster.definition.definition import Definition
from muster.definition.yaml_file import KeyPath


def _parents(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for path, parent in at("accounts.<name>.parent")(d):
        # SLURM's own, at the top of the tree.
        if parent != "root":
            yield path, parent


def _users(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    # Others may be in the directory: `muster check --hosts` asks the machines.
    if d.cluster.users.directory is None:
        yield from at("accounts.<name>.users.[]")(d)


# fmt: off
table(
    Spelling("account-text",
        "A description or organization with a sign that sacctmgr does not keep",
        at("accounts.<name>.description", "accounts.<name>.organization"), r"[^\"'|\\]*",
        "{value} has an apostrophe, a quote, a bar or a backslash, and sacctmgr keeps none",
        "leave it out"),
    UnknownName("account-unknown-parent",
        "An account below one that is not there",
        _parents, "accounts.<name>",
        'no account "{value}"',
        "add it, or leave `parent` out"),
    UnknownName("account-unknown-user",
        "An account with a person who is not there",
        _users, "users.people.<name>",
        'nobody has the login "{value}"',
        "add the person to users.people"),
    ListedTwice("account-user-twice",
        "An account that lists a person twice",
        at("accounts.<name>.users.[]")),
    UnknownName("default-account-unknown",
        "A default account that is not there",
        at("users.people.<name>.default_account"), "accounts.<name>",
        'no account "{value}"',
        "add it to `accounts`"),
)
# fmt: on


@check("account-cycle")
def account_cycle(d: Definition) -> Iterator[Finding]:
    """Accounts that are above each other."""
    accounts = d.cluster.accounts
    done: set[str] = set()
    for name in accounts:
        chain: list[str] = []
        here: str | None = name
        while here in accounts and here not in done and here not in chain:
            chain.append(here)
            here = accounts[here].parent
        if here in chain:
            ring = [*chain[chain.index(here) :], here]
            yield Finding(
                ("accounts", ring[0], "parent"),
                f"the accounts {' below '.join(ring)} form a ring",
                "leave `parent` out of the one at the top",
            )
        done.update(chain)


@check("default-account-of-others")
def default_account_of_others(d: Definition) -> Iterator[Finding]:
    """A default account that does not list the person."""
    for name, person in d.cluster.users.people.items():
        account = d.cluster.accounts.get(person.default_account or "")
        if account is not None and name not in account.users:
            yield Finding(
                ("users", "people", name, "default_account"),
                f"{name} may not charge jobs to {person.default_account}",
                f"add {name} to accounts.{person.default_account}.users",
            )
