"""Checks of SLURM's accounts: the tree, and the people in it."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, repeated, suggestion
from muster.definition.definition import Definition


@check("account-unknown-parent")
def account_unknown_parent(d: Definition) -> Iterator[Finding]:
    """An account below one that is not there."""
    for name, account in d.cluster.accounts.items():
        parent = account.parent
        if parent is not None and parent not in d.cluster.accounts and parent != "root":
            yield Finding(
                ("accounts", name, "parent"),
                f'no account "{parent}"',
                suggestion(parent, d.cluster.accounts, "add it, or leave `parent` out"),
            )


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


@check("account-unknown-user")
def account_unknown_user(d: Definition) -> Iterator[Finding]:
    """An account with a person who is not there."""
    people = d.cluster.users.people
    for name, account in d.cluster.accounts.items():
        for index, person in enumerate(account.users):
            if person not in people:
                yield Finding(
                    ("accounts", name, "users", index),
                    f'nobody has the login "{person}"',
                    suggestion(person, people, "add the person to users.people"),
                    because=("users", "people", person),
                )


@check("account-user-twice")
def account_user_twice(d: Definition) -> Iterator[Finding]:
    """An account that lists a person twice."""
    for name, account in d.cluster.accounts.items():
        for index, person in repeated(account.users):
            yield Finding(
                ("accounts", name, "users", index), f'"{person}" is listed twice', "take one out"
            )


@check("default-account-unknown")
def default_account_unknown(d: Definition) -> Iterator[Finding]:
    """A default account that is not there."""
    for name, person in d.cluster.users.people.items():
        account = person.default_account
        if account is not None and account not in d.cluster.accounts:
            yield Finding(
                ("users", "people", name, "default_account"),
                f'no account "{account}"',
                suggestion(account, d.cluster.accounts, "add it to `accounts`"),
            )


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
