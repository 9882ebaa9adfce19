#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring all groups and people of a host to the wanted state in one module run.

The commands of the package `passwd` do the writing. Passwords are left to others, and so is telling
sshd where the keys are.
"""

import dataclasses
import grp
import ipaddress
import os
import pwd
import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import (
    mounted,
    read_table,
    silent,
)
from ansible_collections.muster.slurm.plugins.module_utils.new_home import (
    FIRST_PERSON,
    is_mounted,
    make_home,
    mounts_of_people,
)
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import refuse_unavailable
from ansible_collections.muster.slurm.plugins.module_utils.whole_file import write

DOCUMENTATION = r"""
module: people
short_description: Groups and people of a host in one run
description:
  - Makes groups and people with fixed numbers; each person has a group of the same name and number.
  - First everything is compared with what is there. If a name or a number belongs to somebody else,
    nothing is touched, and the message says which.
  - Takes people out of the groups given here only; their other memberships stay.
  - Writes the ssh keys of each person into a file of O(keys_dir) named like the login. Files of
    anybody else are removed from there.
  - Accesses shared homes only where it makes them; fails after a time limit where their server does not answer.
  - A home that root can't look at counts as there, and the module warns of it.
  - Where it makes homes it fails too if their file system should be mounted and is not, by C(/etc/fstab), an enabled
    unit of systemd or C(muster-file-systems); in check mode it warns.
  - When a person is removed, the home and the number stay. While processes of this person run, the
    account is expired (it can't log in) and taken out of the groups; a later run removes it.
  - An account of somebody who is no longer listed stays, and the module warns of it. It knows these accounts by their
    keys and by C(/etc/security/muster-no-login), which the role users writes with what RV(barred) says.
options:
  groups:
    description: Groups, C(name) and C(gid) each.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {type: str, required: true, description: Name of the group.}
      gid: {type: int, required: true, description: Its number.}
  people:
    description: People.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {type: str, required: true, description: Login name.}
      uid: {type: int, required: true, description: Number of the person and of the own group.}
      groups: {type: list, elements: str, default: [], description: Further groups.}
      ssh_keys: {type: list, elements: str, default: [], description: Public keys, a line each.}
      shell: {type: str, default: /bin/bash, description: Login shell.}
      state: {type: str, choices: [present, absent], default: present, description: Wanted or not.}
  keys_dir:
    description: Folder of the files with keys; owned by root.
    type: path
    default: /etc/ssh/muster_keys.d
  home_root:
    description: Folder of the homes.
    type: path
    default: /home
  home_shared:
    description: Whether other hosts can write to O(home_root), also where no file system of a server is mounted.
    type: bool
    default: false
  local_homes:
    description:
      - Logins whose home is a folder of this host below O(local_home_root), which is made for them.
      - Root on another host that writes to O(home_root) can't change what their shells start with.
    type: list
    elements: str
    default: []
  local_home_root:
    description: Folder of those homes.
    type: path
    default: /var/lib/muster/home
  no_login:
    description: Logins that sshd will refuse; the module fails if one of them runs it.
    type: list
    elements: str
    default: []
  home_keys:
    description:
      - Logins whose C(~/.ssh/authorized_keys) sshd reads. The module fails if the home of one is shared.
      - It also fails if somebody runs it whose keys are only there and who is not in this list.
    type: list
    elements: str
    default: [root]
  admin_logins:
    description:
      - Logins that sshd refuses by where they come from. The module fails if one of them runs it
        over ssh from where sshd would refuse it.
    type: list
    elements: str
    default: []
  refused_from:
    description: Addresses and networks from which sshd refuses O(admin_logins).
    type: list
    elements: str
    default: []
  admin_networks:
    description: Addresses and networks from which alone sshd takes O(admin_logins); empty, from all others.
    type: list
    elements: str
    default: []
  create_homes:
    description: Whether a missing home is made from /etc/skel, open to its owner only.
    type: bool
    default: false
  home_mounted:
    description: Whether O(home_root) is a mount, so that no home is made below it while it is away.
    type: bool
    default: false
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Make the people
  muster.slurm.people:
    groups: [{name: ml-users, gid: 20000}]
    people:
      - {name: ada, uid: 20001, groups: [ml-users]}
      - {name: bob, uid: 20002, state: absent}
"""

RETURN = r"""
barred:
  description:
    - Logins whose accounts stay here though they are no longer people of the cluster. Nothing but jobs may run for them.
    - They are not listed any more, or are to be removed and have processes.
  type: list
  elements: str
  returned: always
"""

# File systems whose files other hosts can change.
OF_SERVERS = ("nfs", "ceph", "fuse.", "cifs", "smb3", "lustre", "gpfs", "beegfs", "glusterfs", "9p")

# People who may not log in, as the role users wrote it last.
NO_LOGIN = "/etc/security/muster-no-login"

# In the place of a home's owner: it is there, and root can't look at it.
UNSEEN = -1

# Day of an account's expiry, counted from 1970-01-01, that prevents every login.
EXPIRED = "1"


@dataclasses.dataclass(frozen=True)
class Group:
    """A wanted group."""

    name: str
    gid: int


@dataclasses.dataclass(frozen=True)
class Person:
    """A wanted person; `home` is the absolute path of the account's home on this host."""

    name: str
    uid: int
    home: str
    groups: frozenset[str] = frozenset()
    ssh_keys: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    present: bool = True

    @property
    def keys_text(self) -> str:
        """Text of the file with the keys; empty if there is to be none."""
        keys = self.ssh_keys if self.present else ()
        return "".join(f"{key.strip()}\n" for key in keys)


@dataclasses.dataclass(frozen=True)
class Account:
    """An account that the host has; `local` = it is in /etc/passwd."""

    uid: int
    gid: int
    home: str
    shell: str
    expires: str = ""
    local: bool = True


@dataclasses.dataclass(frozen=True)
class HostState:
    """What the host has: accounts, gids and members of groups by name, owners of homes by path.

    `keys` are the texts of the files with keys by login, `busy` the people to be removed who have
    processes, `listed` those who may not log in by the last run.
    """

    accounts: dict[str, Account]
    groups: dict[str, int]
    members: dict[str, frozenset[str]]
    home_owners: dict[str, int | None]
    keys: dict[str, str] = dataclasses.field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Step:
    """One change: of what, from what, to what; by a command, by making a home, by writing keys.

    `home_of` is the uid that a home is made for, `keys_of` the login whose keys are written.
    """

    what: str
    before: str
    after: str
    command: tuple[str, ...] = ()
    home_of: int | None = None
    keys_of: str | None = None


class GroupOptions(TypedDict):
    """An entry of the option groups."""

    name: str
    gid: int


class PersonOptions(TypedDict):
    """An entry of the option people."""

    name: str
    uid: int
    groups: list[str]
    ssh_keys: list[str]
    shell: str
    state: str


class Params(TypedDict):
    """What the module is asked for."""

    groups: list[GroupOptions]
    people: list[PersonOptions]
    keys_dir: str
    home_root: str
    create_homes: bool
    home_mounted: bool
    home_shared: bool
    local_homes: list[str]
    local_home_root: str
    no_login: list[str]
    home_keys: list[str]
    admin_logins: list[str]
    refused_from: list[str]
    admin_networks: list[str]


def conflicts(
    groups: list[Group], people: list[Person], host: HostState, homes: Mapping[str, Person]
) -> list[str]:
    """Return a sentence for each conflict between the host and what is wanted.

    Args:
        groups: Wanted groups.
        people: Wanted people.
        host: What the host has.
        homes: The homes that this host makes, by path.

    """
    said = []
    names_by_gid = {gid: name for name, gid in host.groups.items()}
    names_by_uid = {account.uid: name for name, account in host.accounts.items()}
    # For a different uid only that is reported, not the own group too.
    own_groups = [
        Group(person.name, person.uid)
        for person in people
        if person.present
        and names_by_uid.get(person.uid, person.name) == person.name
        and (person.name not in host.accounts or host.accounts[person.name].uid == person.uid)
    ]
    for group in [*groups, *own_groups]:
        gid = host.groups.get(group.name)
        other = names_by_gid.get(group.gid)
        if gid is not None and gid != group.gid:
            said.append(
                f"group {group.name} has gid {gid} here, wanted is {group.gid}: "
                f"use {gid} in the definition, or groupmod --gid {group.gid} {group.name} "
                "and change the group of its files"
            )
        elif gid is None and other is not None:
            said.append(
                f"gid {group.gid} is taken by group {other}: give {group.name} another number in "
                "the definition, or move that group"
            )
    for person in people:
        account = host.accounts.get(person.name)
        other = names_by_uid.get(person.uid)
        if account is None:
            if person.present and other is not None:
                said.append(
                    f"uid {person.uid} is taken by {other}: give {person.name} another number in "
                    "the definition, or move that account"
                )
        elif account.uid != person.uid:
            said.append(
                f"{person.name} has uid {account.uid} here, in the definition {person.uid}: "
                f"use {account.uid} there, or remove this account if it is somebody else "
                f"(userdel {person.name}) and change the owner of its files"
            )
        elif not account.local:
            said.append(
                f"{person.name} comes from a directory service (LDAP, sssd), not from /etc/passwd: "
                f"remove {person.name} from one of the two"
            )
        names = {group.name for group in groups} | set(host.groups)
        said += [
            f"{person.name} is to be in group {name}, which is neither in the definition nor here: "
            "add it to the definition's groups"
            for name in sorted(person.groups - names)
            if person.present
        ]
    for path, person in homes.items():
        owner = host.home_owners.get(path)
        if owner not in (None, UNSEEN, person.uid):
            said.append(
                f"{path} belongs to uid {owner}, {person.name} has {person.uid}: "
                "move it away, or change its owner if it is the home of this person"
            )
    return said


def plan(
    groups: list[Group], people: list[Person], host: HostState, homes: Mapping[str, Person]
) -> list[Step]:
    """Return the steps from what the host has to what is wanted, in order.

    Args:
        groups: Wanted groups.
        people: Wanted people.
        host: What the host has; free of conflicts.
        homes: The homes that are made where they are missing, by path.

    """
    keys = {person.name: person.keys_text for person in people}
    # First: people who are removed can't log in any more.
    steps = [_keys(name, text, "") for name, text in host.keys.items() if not keys.get(name)]
    own_groups = [Group(person.name, person.uid) for person in people if person.present]
    for group in [*groups, *own_groups]:
        if group.name not in host.groups:
            command = ("groupadd", "--gid", str(group.gid), group.name)
            steps.append(Step(f"group {group.name}", "absent", f"gid {group.gid}", command))
    owned = frozenset(group.name for group in groups)
    for person in people:
        account = host.accounts.get(person.name)
        if person.present:
            # A home is there before its account: nobody logs in without one.
            steps += [
                Step(path, "absent", f"home of {person.name}", home_of=person.uid)
                for path, owner in homes.items()
                if owner == person and host.home_owners.get(path) is None
            ]
            steps += _present(person, account, host, owned)
        elif account is not None:
            steps += _absent(person, account, host, owned)
    for name, text in keys.items():
        before = host.keys.get(name, "")
        if text and text != before:
            steps.append(_keys(name, before, text))
    return steps


def _keys(name: str, before: str, after: str) -> Step:
    return Step(f"ssh keys of {name}", before, after, keys_of=name)


def _memberships(name: str, host: HostState) -> frozenset[str]:
    return frozenset(group for group, members in host.members.items() if name in members)


def _words(uid: int, groups: Iterable[str], shell: str, home: str, note: str = "") -> str:
    return f"uid {uid}, groups {' '.join(sorted(groups)) or '-'}, {shell}, {home}{note}"


def _present(
    person: Person, account: Account | None, host: HostState, owned: frozenset[str]
) -> list[Step]:
    what = f"person {person.name}"
    if account is None:
        command = (
            *("useradd", "--uid", str(person.uid), "--gid", str(person.uid)),
            # "*" is no password, yet the account is not locked: sshd refuses locked ones their
            # keys.
            *("--home-dir", person.home, "--no-create-home", "--password", "*"),
            *("--shell", person.shell, "--groups", ",".join(sorted(person.groups)), person.name),
        )
        after = _words(person.uid, person.groups, person.shell, person.home)
        return [Step(what, "absent", after, command)]
    member = _memberships(person.name, host)
    groups = (member - owned) | person.groups
    options = []
    if account.gid != person.uid:
        options += ["--gid", str(person.uid)]
    if account.shell != person.shell:
        options += ["--shell", person.shell]
    if account.expires == EXPIRED:
        options += ["--expiredate", ""]
    if groups != member:
        options += ["--groups", ",".join(sorted(groups))]
    steps = []
    if account.home != person.home:
        steps.append(Step(f"home of {person.name}", account.home, person.home, _move(person)))
    if options:
        before = _words(account.uid, member, account.shell, account.home, _notes(person, account))
        after = _words(person.uid, groups, person.shell, account.home)
        steps.append(Step(what, before, after, ("usermod", *options, person.name)))
    return steps


def _move(person: Person) -> tuple[str, ...]:
    """Return the command that names another home in /etc/passwd, and touches no folder.

    usermod(8) refuses that while the person has processes, such as the ssh session of this run.
    """
    name = person.name.replace(".", r"\.")
    expression = rf"s|^({name}:.*):[^:]*:([^:]*)$|\1:{person.home}:\2|"
    editor = f"sed --in-place --regexp-extended --expression={shlex.quote(expression)}"
    return ("env", "--unset=VISUAL", f"EDITOR={editor}", "vipw", "--quiet")


def _notes(person: Person, account: Account) -> str:
    gid = f", gid {account.gid}" if account.gid != person.uid else ""
    return gid + (", expired" if account.expires == EXPIRED else "")


def _absent(person: Person, account: Account, host: HostState, owned: frozenset[str]) -> list[Step]:
    what = f"person {person.name}"
    member = _memberships(person.name, host)
    before = _words(account.uid, member, account.shell, account.home, _notes(person, account))
    if person.name not in host.busy:
        steps = [Step(what, before, "absent", ("userdel", person.name))]
        # userdel removes the own group too, unless others are in it.
        if host.members.get(person.name):
            steps.append(
                Step(f"group {person.name}", "present", "absent", ("groupdel", person.name))
            )
        return steps
    kept = member - owned
    if kept == member and account.expires == EXPIRED:
        return []
    after = _words(account.uid, kept, account.shell, account.home, ", expired")
    command = ("usermod", "--expiredate", EXPIRED, "--groups", ",".join(sorted(kept)), person.name)
    return [Step(what, before, after, command)]


def left(people: list[Person], host: HostState, others: Iterable[str]) -> list[str]:
    """Return the logins of people who are no longer listed and whose accounts are still here.

    Args:
        people: Wanted people.
        host: What the host has.
        others: Logins that the role is told something else of, such as the host's own administrators.

    """
    known = {*host.keys, *host.listed}.difference((person.name for person in people), others)
    return sorted(
        name
        for name in known & set(host.accounts)
        if host.accounts[name].local and host.accounts[name].uid >= FIRST_PERSON
    )


def warnings(
    people: list[Person], host: HostState, shells: Iterable[str], remaining: list[str]
) -> list[str]:
    """Return a sentence for each thing that works, but not as somebody may expect.

    Args:
        people: Wanted people.
        host: What the host has.
        shells: Shells of present people that this host lacks.
        remaining: Logins of people who are no longer listed.

    """
    said = [
        f"{person.name} still has processes here, with the groups that they started with. Nobody "
        "logs in with the account, which is expired. Wait until they have ended, or end them "
        f"(pkill -KILL -U {person.name}), and run again, which removes it"
        for person in people
        if person.name in host.busy
    ]
    if remaining:
        logins = ", ".join(f"{name} (uid {host.accounts[name].uid})" for name in remaining)
        said.append(
            f"the definition no longer names {logins}, whose accounts stay here; nothing but jobs "
            "runs for them. To remove an account, write its entry in users.people again, with this "
            "uid and `state: absent`"
        )
    said += [
        f"{path} counts as there, since root can't look at it, as where a program of somebody has "
        f"mounted something (FUSE): findmnt {path} shows that, and umount --lazy {path} ends it"
        for path, owner in host.home_owners.items()
        if owner == UNSEEN
    ]
    return said + [
        f"the shell {shell} is not installed here: people who have it can't log in on this host; "
        "install it or give them another one"
        for shell in sorted(shells)
    ]


def colon_file(path: str) -> dict[str, list[str]]:
    """Return the fields of each line of a file like /etc/passwd, by their first field."""
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        lines = [line.rstrip("\n").split(":") for line in stream]
    return {fields[0]: fields for fields in lines if len(fields) > 1}


def busy_uids() -> set[int]:
    """Return the real uids that processes run under."""
    uids = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/status", encoding="utf-8", errors="replace") as stream:
                line = next(line for line in stream if line.startswith("Uid:"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended meanwhile.
        uids.add(int(line.split()[1]))
    return uids


def owner_of(path: str) -> int | None:
    """Return the uid that owns `path`, None if it does not exist, or UNSEEN."""
    try:
        return os.stat(path).st_uid
    except FileNotFoundError:
        return None
    except PermissionError:
        return UNSEEN


def keys_in(folder: str) -> dict[str, str]:
    """Return the text of each file in `folder` by its name.

    A file that sshd would refuse for its owner or mode shows as a line that says so.
    """
    texts = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        state = os.lstat(path)
        if not stat.S_ISREG(state.st_mode) or (state.st_uid, state.st_mode & 0o777) != (0, 0o644):
            texts[name] = "# wrong owner, mode or kind of file\n"
            continue
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            texts[name] = stream.read()
    return texts


def write_keys(path: str, text: str) -> None:
    """Replace the file at `path`; without text, remove it."""
    if not text:
        os.unlink(path)
        return
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".muster-", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def read_host(people: list[Person], keys_dir: str, homes: Iterable[str]) -> HostState:
    """Return what this host has, as far as `people` and groups are concerned.

    Args:
        people: Wanted people.
        keys_dir: Folder of the files with keys.
        homes: The homes to look at: one on a server that is away can't be looked at.

    """
    local, shadow = colon_file("/etc/passwd"), colon_file("/etc/shadow")
    accounts = {}
    # getpwall shows what a directory service lists; getpwnam also what it doesn't list.
    for entry in [*pwd.getpwall(), *_unlisted(people)]:
        expires = shadow[entry.pw_name][7] if entry.pw_name in shadow else ""
        accounts[entry.pw_name] = Account(
            entry.pw_uid,
            entry.pw_gid,
            entry.pw_dir,
            entry.pw_shell,
            expires,
            entry.pw_name in local,
        )
    groups = grp.getgrall()
    leaving = [person for person in people if not person.present and person.name in accounts]
    busy = busy_uids() if leaving else set()
    theirs = mounts_of_people()
    return HostState(
        accounts,
        {group.gr_name: group.gr_gid for group in groups},
        {group.gr_name: frozenset(group.gr_mem) for group in groups if group.gr_mem},
        {path: UNSEEN if path in theirs else owner_of(path) for path in homes},
        keys_in(keys_dir),
        frozenset(person.name for person in leaving if person.uid in busy),
        frozenset(_lines(NO_LOGIN)),
    )


def _lines(path: str) -> list[str]:
    """Return the lines of a file; none if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read().split()
    except FileNotFoundError:
        return []


def _unlisted(people: list[Person]) -> Iterator[pwd.struct_passwd]:
    for person in people:
        for lookup in (partial(pwd.getpwnam, person.name), partial(pwd.getpwuid, person.uid)):
            try:
                yield lookup()
            except KeyError:
                continue


def homes_of(person: Person, shared: str, *, create_shared: bool) -> list[str]:
    """Return the paths of the homes of a person that this host makes; `shared` is the shared one.

    An administrator whose home here is local has the shared one on other hosts.
    """
    local = [person.home] if person.home != shared else []
    return [shared, *local] if create_shared else local


def is_of_server(path: str, table: str) -> bool:
    """Whether the file system of `path` comes from a server, by proc_pid_mountinfo(5).

    Without a look at the path itself, which would wait for a server that is away.
    """
    kinds = {mount: kind for mount, (kind, _, _) in mounted(table).items()}
    while path not in kinds and path != "/":
        path = os.path.dirname(path)
    return kinds.get(path, "").startswith(OF_SERVERS)


def logged_in_as(environment: Mapping[str, str]) -> str:
    """Return the login of the person who runs this, directly or by sudo or doas."""
    return environment.get("SUDO_USER") or environment.get("DOAS_USER") or "root"


def locked_out(no_login: list[str], login: str) -> list[str]:
    """Report if the person who runs this could not log in again."""
    if login not in no_login:
        return []
    return [
        f"{login} runs this and could not log in here any more; give {login} `admin: true` in "
        "users.people, or use a login that is not among the people"
    ]


def forgotten(remaining: list[str], login: str) -> list[str]:
    """Report if the definition no longer names the person who runs this."""
    if login not in remaining:
        return []
    return [
        f"{login} runs this, whom the definition no longer names; write the entry in users.people "
        f"again, or, for an account of this host's own, add {login} to users_home_keys in the "
        "inventory's group_vars/all"
    ]


def remember(remaining: list[str], path: str) -> None:
    """Bar accounts that are not barred yet, before their keys go, by which they are known.

    A run that ends before the role writes the list would forget them.
    """
    there = _lines(path)
    if new := [name for name in remaining if name not in there]:
        write(path, "".join(f"{name}\n" for name in [*there, *new]))


def without_keys(
    people: list[Person], host: HostState, home_keys: list[str], login: str
) -> list[str]:
    """Report if the person who runs this has ssh keys only where sshd will not read them."""
    known = {person.name for person in people if person.present and person.ssh_keys}
    if login in known.union(home_keys) or login not in host.accounts:
        return []
    file = f"{host.accounts[login].home}/.ssh/authorized_keys"
    if not silent(file) and not os.path.exists(file):
        return []
    return [
        f"{login} runs this and sshd would not read the keys in {file} any more; add {login} to "
        "users_home_keys in the inventory's group_vars/all, or, if this is a person of the "
        "cluster, the keys to users.people"
    ]


def in_shared_homes(home_keys: list[str], host: HostState, home_root: str) -> list[str]:
    """Report the logins with keys in homes that others can write to."""
    return [
        f"the home of {login}, {host.accounts[login].home}, is in {home_root}, where root of each "
        "node may put keys; move it to a folder of this host "
        f"(usermod --move-home --home /var/lib/{login} {login}), or take {login} out of "
        "users_home_keys"
        for login in home_keys
        if login in host.accounts
        and os.path.normpath(host.accounts[login].home).startswith(f"{home_root}/")
    ]


def refused_here(params: "Params", login: str, peer: str) -> list[str]:
    """Report if the person who runs this over ssh, from the address `peer`, could not any more."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:  # not by ssh, or sshd does not know the address: then it is "UNKNOWN"
        return []
    if login not in params["admin_logins"]:
        return []
    if _is_in(address, params["refused_from"]):
        why = "administrators don't come from nodes; run it from another machine"
    elif params["admin_networks"] and not _is_in(address, params["admin_networks"]):
        why = (
            "users.admin_networks does not have this address; add it or its network, or run this "
            "from another machine"
        )
    else:
        return []
    return [f"{login} runs this from {peer}, from where sshd would refuse {login}: {why}"]


def _is_in(address: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: Iterable[str]) -> bool:
    return any(address in ipaddress.ip_network(network, strict=False) for network in networks)


def peer_of(process: int, proc: str = "/proc") -> str:
    """Return the address that a process was started from by ssh; empty if not by ssh.

    sudo and doas take SSH_CONNECTION away from the programs that they start, so the processes above
    are looked at too.
    """
    try:
        while process > 1:
            with open(f"{proc}/{process}/environ", encoding="utf-8", errors="replace") as stream:
                pairs = dict(entry.partition("=")[::2] for entry in stream.read().split("\0"))
            if connection := pairs.get("SSH_CONNECTION"):
                return connection.split()[0]
            with open(f"{proc}/{process}/status", encoding="utf-8", errors="replace") as stream:
                process = next(int(line.split()[1]) for line in stream if line.startswith("PPid:"))
    except OSError:
        # Above are processes that have ended, or that only their owner may look at.
        return ""
    return ""


def main() -> None:
    """Run the module."""
    name_and = {"name": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "groups": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {**name_and, "gid": {"type": "int", "required": True}},
            },
            "people": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    **name_and,
                    "uid": {"type": "int", "required": True},
                    "groups": {"type": "list", "elements": "str", "default": []},
                    "ssh_keys": {
                        "type": "list",
                        "elements": "str",
                        "default": [],
                        "no_log": False,
                    },
                    "shell": {"type": "str", "default": "/bin/bash"},
                    "state": {
                        "type": "str",
                        "default": "present",
                        "choices": ["present", "absent"],
                    },
                },
            },
            "keys_dir": {
                "type": "path",
                "default": "/etc/ssh/muster_keys.d",
                "no_log": False,
            },
            "home_root": {"type": "path", "default": "/home"},
            "create_homes": {"type": "bool", "default": False},
            "home_mounted": {"type": "bool", "default": False},
            "home_shared": {"type": "bool", "default": False},
            "local_homes": {"type": "list", "elements": "str", "default": []},
            "local_home_root": {"type": "path", "default": "/var/lib/muster/home"},
            "no_login": {"type": "list", "elements": "str", "default": []},
            "home_keys": {
                "type": "list",
                "elements": "str",
                "default": ["root"],
                "no_log": False,
            },
            "admin_logins": {"type": "list", "elements": "str", "default": []},
            "refused_from": {"type": "list", "elements": "str", "default": []},
            "admin_networks": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params: Params = module.params
    create_homes = params["create_homes"]
    if params["home_mounted"]:
        create_homes = create_homes and is_mounted(params["home_root"])
    groups = [Group(group["name"], group["gid"]) for group in params["groups"]]
    shared = {entry["name"]: f"{params['home_root']}/{entry['name']}" for entry in params["people"]}
    local = {name: f"{params['local_home_root']}/{name}" for name in params["local_homes"]}
    people = [
        Person(
            person["name"],
            person["uid"],
            local.get(person["name"], shared[person["name"]]),
            frozenset(person["groups"]),
            tuple(person["ssh_keys"]),
            person["shell"],
            person["state"] == "present",
        )
        for person in params["people"]
    ]
    homes = {
        path: person
        for person in people
        if person.present
        for path in homes_of(person, shared[person.name], create_shared=create_homes)
    }
    keys_dir = params["keys_dir"]
    if create_homes:
        refuse_unavailable(module, [params["home_root"]])
    host = read_host(people, keys_dir, homes)
    others = [*params["home_keys"], *params["admin_logins"], *params["no_login"]]
    remaining = left(people, host, others)
    login = logged_in_as(os.environ)
    problems = conflicts(groups, people, host, homes)
    problems += locked_out(params["no_login"], login) + forgotten(remaining, login)
    problems += without_keys(people, host, params["home_keys"], login)
    if params["home_shared"] or is_of_server(params["home_root"], read_table()):
        problems += in_shared_homes(params["home_keys"], host, params["home_root"])
    problems += refused_here(params, login, peer_of(os.getpid()))
    if problems:
        module.fail_json(msg="nothing was touched: " + "; ".join(problems), problems=problems)

    shells = {person.shell for person in people if person.present}
    # A shell in a shared folder is not missing while its server is away.
    missing_shells = {
        shell for shell in shells if not silent(shell) and not os.access(shell, os.X_OK)
    }
    for sentence in warnings(people, host, missing_shells, remaining):
        module.warn(f"{os.uname().nodename}: {sentence}")
    steps = plan(groups, people, host, homes)
    if not module.check_mode:
        remember(remaining, NO_LOGIN)
        for step in steps:
            apply(module, step, keys_dir)
    module.exit_json(
        changed=bool(steps),
        barred=sorted([*remaining, *host.busy]),
        diff=[
            {
                "before_header": step.what,
                "after_header": step.what,
                "before": step.before.rstrip("\n") + "\n",
                "after": step.after.rstrip("\n") + "\n",
            }
            for step in steps
        ],
    )


def apply(module: AnsibleModule, step: Step, keys_dir: str) -> None:
    """Do one step; end the task with a sentence if it can't be done."""
    if step.command:
        code, out, err = run(list(step.command))
        if code != 0:
            module.fail_json(
                msg=f"{step.what}: {step.command[0]} said: {err.strip() or out.strip()}; "
                "fix that and run again, what was done before it stays"
            )
        return
    try:
        if step.keys_of is not None:
            write_keys(os.path.join(keys_dir, step.keys_of), step.after)
        elif step.home_of is not None:
            make_home(step.what, step.home_of, step.home_of)
    except OSError as error:
        remedy = (
            "make homes on the one host that may write there as root (users_create_homes)"
            if step.home_of is not None
            else "fix that and run again"
        )
        module.fail_json(msg=f"{step.what}: {error.filename}: {error.strerror}; {remedy}")


if __name__ == "__main__":
    main()
