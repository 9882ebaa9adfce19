#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring a cluster's accounts and their users in slurmdbd to a wanted state, in one module run.

Reading (`parse`), deciding (`wanted`, `target`, `plan`) and doing (`Sacctmgr`) are apart: the first
two are functions of text and data, so their tests need no slurmdbd.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

DOCUMENTATION = r"""
module: slurm_accounts
short_description: Accounts, users and associations of a SLURM cluster
description:
  - Reads what slurmdbd holds (C(sacctmgr show)), compares it with what is wanted and runs only the
    C(sacctmgr) commands that lead there. Exit codes of sacctmgr tell little (adding what exists is
    an error, setting what is set is a change), so the module reads again afterwards and fails if
    something did not come true.
  - sacctmgr stores names and texts in lower case, so C(LAB-test) and C(lab-test) are one account.
    Jobs may use either spelling.
  - Needs C(sacctmgr), munge and root, but no slurm.conf on the host.
  - Account C(root) and user C(root) are never changed.
options:
  cluster:
    description: ClusterName. It is registered if slurmdbd does not know it.
    type: str
    required: true
  accounts:
    description: The accounts, in any order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the account.
        type: str
        required: true
      parent:
        description: Account above it; C(root) when left out.
        type: str
      description:
        description: Free text; empty means the account's name, as sacctmgr does it.
        type: str
        default: ""
      organization:
        description: Free text; empty means the parent's name, or the account's own below C(root).
        type: str
        default: ""
      fairshare:
        description: Shares, relative to the accounts beside it.
        type: int
        default: 1
      users:
        description: Logins that may charge jobs to it.
        type: list
        elements: str
        default: []
  users:
    description: Further settings of users, beyond the accounts that list them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Login.
        type: str
        required: true
      default_account:
        description:
          - Account of jobs that name none.
          - When left out, the first of O(accounts) that lists the user.
        type: str
      admin_level:
        description: Rights over all accounts.
        type: str
        choices: [none, operator, administrator]
        default: none
  prune:
    description:
      - Remove the accounts and associations that are not wanted. What has jobs, pending or running,
        is kept and named in a warning. Without O(prune) all are kept, and named in a warning.
    type: bool
    default: false
  host:
    description: Where slurmdbd runs.
    type: str
    default: localhost
  port:
    description: Its TCP port.
    type: int
    default: 6819
  timeout_seconds:
    description: How long to wait for slurmdbd to answer.
    type: int
    default: 60
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Keep the accounts
  muster.slurm.slurm_accounts:
    cluster: lab
    accounts:
      - {name: LAB-test, users: [ada, alan], fairshare: 10}
    users:
      - {name: ada, default_account: LAB-test}
"""

RETURN = r"""
commands:
  description: The sacctmgr commands that were run, or would be in check mode.
  type: list
  elements: str
  returned: always
unlisted:
  description: Accounts and associations that are there and not wanted.
  type: list
  elements: str
  returned: always
kept:
  description: Those of RV(unlisted) that O(prune) could not remove, each with the reason.
  type: list
  elements: str
  returned: always
"""

ROOT = "root"
COMMAND_SECONDS = 60
# Names in one command, so that its arguments stay well below the kernel's limit.
NAMES_PER_COMMAND = 200
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
# sacctmgr strips quotes, splits its own output at | and its lines at line ends.
BAD_TEXT = re.compile(r"[\"'|\\\x00-\x1f]")

READS = {
    "clusters": ["show", "cluster", "format=cluster"],
    "accounts": ["show", "account", "format=account,description,organization"],
    "users": [
        "show",
        "user",
        "where",
        "cluster={cluster}",
        "format=user,defaultaccount,adminlevel",
    ],
    "associations": [
        "show",
        "association",
        "where",
        "cluster={cluster}",
        "format=account,user,partition,parentname,fairshare",
    ],
}
"""What is read, as arguments of `sacctmgr -nP`."""


@dataclass(frozen=True)
class Account:
    """An account on one cluster."""

    parent: str
    description: str
    organization: str
    fairshare: str


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


class AccountOptions(TypedDict):
    """An entry of the option accounts."""

    name: str
    parent: str | None
    description: str
    organization: str
    fairshare: int
    users: list[str]


class UserOptions(TypedDict):
    """An entry of the option users."""

    name: str
    default_account: str | None
    admin_level: str


class Params(TypedDict):
    """What the module is asked for."""

    cluster: str
    accounts: list[AccountOptions]
    users: list[UserOptions]
    prune: bool
    host: str
    port: int
    timeout_seconds: int


def lower(text: str) -> str:
    """Return `text` in lower case as SLURM does it: ASCII letters only, whatever the locale."""
    return "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in text)


def parse(cluster: str, outputs: dict[str, str]) -> State:
    """Return the State that the outputs of READS describe (keys as in READS)."""
    rows = {
        name: [line.split("|") for line in text.splitlines() if line.strip()]
        for name, text in outputs.items()
    }
    texts = {row[0]: ("|".join(row[1:-1]), row[-1]) for row in rows["accounts"]}
    logins = {row[0]: (row[1], lower(row[2])) for row in rows["users"]}
    accounts: dict[str, Account] = {}
    associations: dict[str, set[tuple[str, str]]] = {}
    accounts_of_root: set[str] = set()
    for account, user, partition, parent, fairshare in rows["associations"]:
        if user == ROOT:
            accounts_of_root.add(account)
        elif user:
            associations.setdefault(user, set()).add((account, partition))
        elif account != ROOT:
            accounts[account] = Account(parent, *texts.get(account, ("", "")), fairshare)
    users = {
        user: User(*logins.get(user, ("", "none")), frozenset(pairs))
        for user, pairs in associations.items()
    }
    return State(
        registered=[lower(cluster)] in [[lower(row[0])] for row in rows["clusters"]],
        accounts=accounts,
        users=users,
        accounts_of_root=frozenset(accounts_of_root),
    )


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


def wanted(accounts: list[AccountOptions], users: list[UserOptions]) -> State:
    """Return the State that the module's options ask for.

    Raises:
        RefusedError: the options contradict each other.

    """
    tree: dict[str, Account] = {}
    listed: dict[str, list[str]] = {}
    for entry in accounts:
        name = checked_name("account", entry["name"])
        parent = checked_name("parent account", entry["parent"] or ROOT)
        if name == ROOT or name in tree:
            why = "belongs to SLURM" if name == ROOT else "is there twice (case does not count)"
            raise RefusedError(f'account "{entry["name"]}" {why}; take it out')
        tree[name] = Account(
            parent=parent,
            description=checked_text(name, "description", entry["description"]) or name,
            organization=checked_text(name, "organization", entry["organization"])
            or (name if parent == ROOT else parent),
            fairshare=str(entry["fairshare"]),
        )
        for user in entry["users"]:
            listed.setdefault(checked_name("user", user), []).append(name)
    ordered(tree)
    said = {checked_name("user", entry["name"]): entry for entry in users}
    wish = {}
    for user, of_user in listed.items():
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
    return State(registered=True, accounts=tree, users=wish)


def ordered(accounts: dict[str, Account]) -> list[str]:
    """Return the names of `accounts`, parents first.

    Raises:
        RefusedError: a parent is missing or the accounts form a circle.

    """
    done: list[str] = []
    left = list(accounts)
    while left:
        ready = [name for name in left if accounts[name].parent in (ROOT, *done)]
        if not ready:
            name = left[0]
            raise RefusedError(
                f"account {name}: its parent {accounts[name].parent} is no account or lies "
                "below it; list the parent, or root"
            )
        done += ready
        left = [name for name in left if name not in ready]
    return done


def unlisted(current: State, wish: State) -> tuple[set[str], set[tuple[str, str, str]]]:
    """Return (accounts, {(user, account, partition)}) that are there and not wanted."""
    accounts = set(current.accounts) - set(wish.accounts)
    associations: set[tuple[str, str, str]] = set()
    for user, existing in current.users.items():
        of_user = wish.users[user].associations if user in wish.users else frozenset()
        associations |= {
            (user, account, partition) for account, partition in existing.associations - of_user
        }
    return accounts, associations


def target(
    current: State, wish: State, prune: bool = False, busy: frozenset[tuple[str, str]] = frozenset()
) -> State:
    """Return the State to reach: what is wanted, and what is there and is not to be removed.

    `busy` holds the (account, user) that have jobs: with `prune` they and the accounts above stay.
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
    return State(
        registered=True,
        accounts={name: current.accounts[name] for name in accounts - set(wish.accounts)}
        | wish.accounts,
        users=users,
        accounts_of_root=current.accounts_of_root,
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

    The order matters: parents before children; an account before its users; a user's new default
    account before the old one goes (22.05 removes it and leaves the user without any).
    """
    on = f"cluster={cluster}"
    commands = [] if current.registered else [["add", "cluster", cluster]]
    for name in ordered(goal.accounts):
        account, existing = goal.accounts[name], current.accounts.get(name)
        settings = [
            f"{key}={getattr(account, key)}"
            for key in ("parent", "fairshare", "description", "organization")
            if existing is None or getattr(existing, key) != getattr(account, key)
        ]
        if existing is None:
            commands.append(["add", "account", f"name={name}", on, *settings])
        elif settings:
            commands.append(["modify", "account", "where", f"name={name}", on, "set", *settings])

    commands += _associations_to_add(on, current, goal)
    for keyword, attribute, where in (
        ("defaultaccount", "default_account", [on]),
        ("adminlevel", "admin_level", []),
    ):
        changed: dict[str, list[str]] = {}
        for user, wish in sorted(goal.users.items()):
            # A user made just now has the wanted default account, and no rights.
            before = current.users.get(user, replace(wish, admin_level="none"))
            if getattr(before, attribute) != getattr(wish, attribute):
                changed.setdefault(getattr(wish, attribute), []).append(user)
        for value, names in changed.items():
            commands += [
                ["modify", "user", "where", f"name={some}", *where, "set", f"{keyword}={value}"]
                for some in _batches(names)
            ]

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


def shown(cluster: str, state: State) -> str:
    """Return `state` as the lines of a diff."""
    lines = [f"cluster {cluster}"] if state.registered else []
    for name, account in sorted(state.accounts.items()):
        lines.append(
            f"account {name}: parent={account.parent} fairshare={account.fairshare} "
            f'description="{account.description}" organization="{account.organization}"'
        )
    for name, user in sorted(state.users.items()):
        accounts = ",".join(_association(*association) for association in sorted(user.associations))
        lines.append(
            f"user {name}: accounts={accounts} default={user.default_account} "
            f"adminlevel={user.admin_level}"
        )
    return "".join(line + "\n" for line in lines)


def _association(account: str, partition: str) -> str:
    return f"{account}:{partition}" if partition else account


def described(accounts: Iterable[str], associations: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return accounts and associations as words for a message, sorted."""
    return [f"account {name}" for name in sorted(accounts)] + [
        f"user {user} in {_association(account, partition)}"
        for user, account, partition in sorted(associations)
    ]


class Sacctmgr:
    """Talks to one slurmdbd through sacctmgr and sacct."""

    def __init__(
        self,
        cluster: str,
        host: str,
        port: int,
        timeout_seconds: float,
        run: "Callable[..., subprocess.CompletedProcess[str]]" = subprocess.run,
    ) -> None:
        self.cluster = cluster
        self.host = host
        self.port = port
        self.timeout_seconds = timeout_seconds
        self.run = run

    def _call(self, program: str, *words: str) -> tuple[int, str, str]:
        """Return (exit code, output, errors) of `program` run with its own slurm.conf.

        A database host has no slurm.conf, and a controller has none before its cluster is known.
        """
        path = shutil.which(program)
        if path is None:
            raise RefusedError(f"no {program} on this host; install the package slurm-client")
        with tempfile.NamedTemporaryFile("w", prefix="muster-slurm-", suffix=".conf") as conf:
            conf.write(
                f"ClusterName={self.cluster}\nSlurmctldHost=localhost\nAuthType=auth/munge\n"
                "AccountingStorageType=accounting_storage/slurmdbd\n"
                f"AccountingStorageHost={self.host}\nAccountingStoragePort={self.port}\n"
            )
            conf.flush()
            try:
                done = self.run(
                    [path, *words],
                    env={**os.environ, "SLURM_CONF": conf.name, "LC_ALL": "C.UTF-8"},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=COMMAND_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return 124, "", f"{program} did not end within {COMMAND_SECONDS} s"
        return done.returncode, done.stdout, done.stderr

    def _read(self, what: str) -> str:
        words = [word.format(cluster=self.cluster) for word in READS[what]]
        code, out, err = self._call("sacctmgr", "-nP", *words)
        # Exit code 0 with an error on stderr is a failure too: it may come with half an answer.
        if code != 0 or "error:" in err:
            raise RefusedError(
                _words(err) or _words(out) or f"sacctmgr {' '.join(words)}: exit {code}"
            )
        return out

    def first_state(self) -> State:
        """Return the state as soon as slurmdbd answers; refuse after the bound."""
        deadline = time.monotonic() + self.timeout_seconds
        while True:
            try:
                return self.state()
            except RefusedError as error:
                if time.monotonic() >= deadline:
                    raise RefusedError(
                        f"slurmdbd on {self.host}:{self.port} did not answer within "
                        f"{self.timeout_seconds} s ({error}); start it there (systemctl status "
                        "slurmdbd, systemctl status munge) and run again"
                    ) from error
                time.sleep(min(1, max(0, deadline - time.monotonic())))

    def state(self) -> State:
        """Return what slurmdbd holds of the cluster."""
        return parse(self.cluster, {name: self._read(name) for name in READS})

    def change(self, command: list[str]) -> str | None:
        """Run one command of a plan; return what it said if it failed (None: done)."""
        code, out, err = self._call("sacctmgr", "-i", *command)
        return None if code == 0 else (_words(err + "\n" + out) or f"exit {code}")

    def busy(self) -> frozenset[tuple[str, str]]:
        """Return the (account, user) that have pending or running jobs."""
        states = "PENDING,RUNNING,SUSPENDED,REQUEUED,RESIZING"
        words = ["-nPX", "--allusers", f"--clusters={self.cluster}", f"--state={states}"]
        code, out, err = self._call("sacct", *words, "--format=account,user")
        if code != 0 or "error:" in err:
            raise RefusedError(
                f"sacct does not say which accounts have jobs ({_words(err)}), so nothing is pruned"
            )
        return frozenset(
            (account, user)
            for account, bar, user in (line.partition("|") for line in out.splitlines())
            if bar
        )


def _words(text: str) -> str:
    """Return what a command said as one line."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def apply(
    slurmdbd: Sacctmgr, current: State, wish: State, prune: bool, busy: frozenset[tuple[str, str]]
) -> list[list[str]]:
    """Run the plan until slurmdbd holds the goal; return the commands.

    A second round is for what the first can't see: a user or an account that was on the cluster
    once comes back with its old description or rights.

    Raises:
        RefusedError: after the last round something is still missing.

    """
    done, said = [], []
    for _ in range(2):
        goal = target(current, wish, prune, busy)
        commands = plan(slurmdbd.cluster, current, goal)
        for command in commands:
            done.append(command)
            complaint = slurmdbd.change(command)
            if complaint:
                said.append(f"sacctmgr {shlex.join(command)}: {complaint}")
        if not commands:
            return done
        current = slurmdbd.state()
    left = plan(slurmdbd.cluster, current, target(current, wish, prune, busy))
    if left:
        raise RefusedError(
            f"slurmdbd did not take: {'; '.join(map(shlex.join, left))}"
            + (f"; it said: {' | '.join(said)}" if said else " (and gave no reason)")
            + "; what was taken stays, fix the cause and run again"
        )
    return done


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "accounts": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "parent": {"type": "str"},
                    "description": {"type": "str", "default": ""},
                    "organization": {"type": "str", "default": ""},
                    "fairshare": {"type": "int", "default": 1},
                    "users": {"type": "list", "elements": "str", "default": []},
                },
            },
            "users": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "default_account": {"type": "str"},
                    "admin_level": {
                        "type": "str",
                        "default": "none",
                        "choices": ["none", "operator", "administrator"],
                    },
                },
            },
            "prune": {"type": "bool", "default": False},
            "host": {"type": "str", "default": "localhost"},
            "port": {"type": "int", "default": 6819},
            "timeout_seconds": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    options: Params = module.params
    try:
        cluster = checked_name("cluster", options["cluster"])
        wish = wanted(options["accounts"], options["users"])
        slurmdbd = Sacctmgr(cluster, options["host"], options["port"], options["timeout_seconds"])
        current = read(module, slurmdbd)
        accounts, associations = unlisted(current, wish)
        busy: frozenset[tuple[str, str]] = frozenset()
        if options["prune"] and (accounts or associations):
            busy = slurmdbd.busy()
        goal = target(current, wish, options["prune"], busy)
        commands = plan(cluster, current, goal)
        if commands and not module.check_mode:
            commands = apply(slurmdbd, current, wish, options["prune"], busy)
    except RefusedError as error:
        module.fail_json(msg=str(error))
    kept = described(*unlisted(goal, wish))
    if kept and options["prune"]:
        module.warn(f"{cluster}: kept, for jobs or user root use them: {', '.join(kept)}")
    elif kept:
        module.warn(
            f"{cluster}: not in the definition, and kept: {', '.join(kept)}; "
            "accounts_prune: true removes them"
        )
    module.exit_json(
        changed=bool(commands),
        commands=[shlex.join(["sacctmgr", *command]) for command in commands],
        unlisted=described(accounts, associations),
        kept=kept if options["prune"] else [],
        diff={
            "before_header": f"slurmdbd: {cluster}",
            "after_header": f"slurmdbd: {cluster}",
            "before": shown(cluster, current),
            "after": shown(cluster, goal),
        },
    )


def read(module: AnsibleModule, slurmdbd: Sacctmgr) -> State:
    """Return the current State; in check mode an empty one where there is no slurmdbd yet."""
    if not module.check_mode:
        return slurmdbd.first_state()
    try:
        return slurmdbd.state()
    except RefusedError as error:
        module.warn(f"slurmdbd does not answer, so all is shown as to be made: {error}")
        return State()


if __name__ == "__main__":
    main()
