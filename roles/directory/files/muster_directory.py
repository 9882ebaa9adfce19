#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Ask the directory, and make homes for its people. Installed by Muster's role `directory`.

    muster-directory ask      whether a server answers, takes the login and has the groups
    muster-directory check    whether sssd on this host knows the groups
    muster-directory homes    make homes of the groups' members, again each minute

Exit code: 0, or 1 with a sentence that says what is wrong and what to do.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from new_home import is_mounted, make_home, mounts_of_people
from project_quota import FileSystem, Folder, limit

CONFIG = Path("/etc/muster/directory.json")
PASSWORD = "/etc/muster/directory-password"  # noqa: S105 - its file
SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
COMMON_ACCOUNT = Path("/etc/pam.d/common-account")
LOCAL_ACCOUNTS = Path("/etc/passwd")

SERVER_WAIT_S = 30
SSSD_WAIT_S = 60
"""sssd that found no server tries again after a minute at most (offline_timeout)."""
CONNECT_S = 5
SEARCH_S = 20
HOMES_EVERY_S = 60

# Of one path segment, and no option of a program.
LOGIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

MEMBERS = {"rfc2307": "memberUid", "rfc2307bis": "member"}
"""By which attribute a group names its members: sssd-ldap(5), ldap_schema."""

# RFC 4511, 4.1.9.
NO_SUCH_OBJECT = 32
INVALID_CREDENTIALS = 49
# What ldapsearch ends with where it got no answer: -1, and 1 where StartTLS failed.
NO_ANSWER = (255, 1)


@dataclass(frozen=True)
class Config:
    """What the role wrote for this program."""

    servers: tuple[str, ...]
    base: str
    bind_dn: str
    """Empty: no login."""
    ca: str
    """File of the authority's certificate."""
    groups: tuple[str, ...]
    ldap_schema: str
    """A key of MEMBERS."""
    home_root: str
    create_homes: bool
    """Whether this host makes homes."""
    home_mounted: bool
    """Whether homes are made in a mount only."""
    quota_gib: int
    quota_files: int
    """Of each home; 0: none."""


@dataclass(frozen=True)
class Member:
    """A person of the directory."""

    name: str
    uid: int
    gid: int


class WrongError(Exception):
    """What is wrong, and what to do."""


class NoAnswerError(WrongError):
    """A server that may answer later."""


Run = Callable[[Sequence[str], Mapping[str, str]], "subprocess.CompletedProcess[str]"]


def run_program(
    command: Sequence[str], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end.

    Raises:
        TimeoutExpired: it took longer than SEARCH_S seconds.

    """
    return subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        timeout=SEARCH_S,
        check=False,
    )


def config_of(text: str) -> Config:
    """Return what is in the file of the role."""
    data = json.loads(text)
    return Config(
        servers=tuple(data["servers"]),
        base=data["base"],
        bind_dn=data["bind_dn"],
        ca=data["ca"] or SYSTEM_CA,
        groups=tuple(data["groups"]),
        ldap_schema=data["ldap_schema"],
        home_root=data["home_root"],
        create_homes=data["create_homes"],
        home_mounted=data["home_mounted"],
        quota_gib=data["quota_gib"],
        quota_files=data["quota_files"],
    )


# -- the servers ---------------------------------------------------------------------------------


def connect(server: str) -> None:
    """Open a connection to a server and close it again.

    Raises:
        OSError: there is none.

    """
    parts = urlsplit(server)
    port = parts.port or (636 if parts.scheme == "ldaps" else 389)
    socket.create_connection((parts.hostname or "", port), CONNECT_S).close()


def search(
    config: Config, server: str, scope: str, condition: str, run: Run
) -> "subprocess.CompletedProcess[str]":
    """Search the directory on one server, encrypted: entries, and which of MEMBERS they have."""
    command = ["ldapsearch", "-x", "-LLL", "-A", "-o", f"nettimeout={CONNECT_S}", "-l", "10"]
    command += ["-H", server, *(["-ZZ"] if server.startswith("ldap:") else [])]
    # The password comes from a file: arguments are seen by everybody.
    command += ["-D", config.bind_dn, "-y", PASSWORD] if config.bind_dn else []
    command += ["-b", config.base, "-s", scope, condition, *MEMBERS.values()]
    settings = {
        "LDAPCONF": "/dev/null",
        "LDAPTLS_CACERT": config.ca,
        "LDAPTLS_REQCERT": "demand",
    }
    return run(command, settings)


def escaped(name: str) -> str:
    """Return a name as a condition holds it (RFC 4515)."""
    return re.sub(r"[*()\\\x00]", lambda match: f"\\{ord(match[0]):02x}", name)


def ask_server(
    config: Config, server: str, run: Run, open_connection: Callable[[str], None]
) -> None:
    """Ask one server for the base and the groups.

    Raises:
        NoAnswerError: it does not answer.
        WrongError: it refuses, or something is not there.

    """
    try:
        open_connection(server)
    except OSError as error:
        said = error.strerror or str(error)
        raise NoAnswerError(f"no connection to {server}: {said}") from error
    try:
        refuse(config, server, search(config, server, "base", "(objectClass=*)", run))
        for group in config.groups:
            condition = f"(&(objectClass=posixGroup)(cn={escaped(group)}))"
            answer = search(config, server, "sub", condition, run)
            refuse(config, server, answer)
            if not re.search("^dn:", answer.stdout, re.MULTILINE):
                reader = config.bind_dn or "somebody without a login"
                raise WrongError(
                    f"{server} shows no group {group} below {config.base} to {reader}; correct "
                    "directory_groups or directory_base (in the definition users.directory), or "
                    "let that entry read groups of the class posixGroup"
                )
            refuse_schema(config, server, group, answer.stdout)
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{server} gave no answer within {SEARCH_S} s") from error


def refuse_schema(config: Config, server: str, group: str, entry: str) -> None:
    """Raise WrongError if sssd would see no member of a group that has members."""
    there = {line.partition(":")[0].lower() for line in entry.splitlines()}
    if MEMBERS[config.ldap_schema].lower() in there:
        return
    for schema, attribute in MEMBERS.items():
        if attribute.lower() in there:
            raise WrongError(
                f"{server} names the members of group {group} by {attribute}, so with ldap_schema "
                f"{config.ldap_schema} nobody is in it; set users.directory.ldap_schema: {schema}"
            )


def refuse(config: Config, server: str, answer: "subprocess.CompletedProcess[str]") -> None:
    """Raise WrongError or NoAnswerError if the server did not do what it was asked."""
    if answer.returncode == 0:
        return
    if answer.returncode == INVALID_CREDENTIALS:
        raise WrongError(
            f"{server} does not take the password of {config.bind_dn}; correct "
            "`directory_password` among the secrets, or directory_bind_dn (in the definition "
            "users.directory.bind_dn)"
        )
    if answer.returncode == NO_SUCH_OBJECT:
        raise WrongError(
            f"{server} has no entry {config.base}, or does not show it to "
            f"{config.bind_dn or 'somebody without a login'}; correct directory_base (in the "
            "definition users.directory.base)"
        )
    said = "; ".join(line.strip() for line in answer.stderr.splitlines() if line.strip())
    if answer.returncode in NO_ANSWER:
        # It has just taken a connection.
        raise NoAnswerError(
            f"{server} takes connections and no encryption that this host trusts ({said}); its "
            f"certificate must be for that name, and signed by an authority in {config.ca}"
        )
    raise WrongError(f"{server} refused to answer: {said}; see its log")


def ask(
    config: Config,
    run: Run = run_program,
    open_connection: Callable[[str], None] = connect,
    wait_s: float = SERVER_WAIT_S,
) -> None:
    """Return when a server has answered.

    Raises:
        WrongError: none did within `wait_s` seconds, or one refused.

    """
    end = time.monotonic() + wait_s
    while True:
        silent = []
        for server in config.servers:
            try:
                return ask_server(config, server, run, open_connection)
            except NoAnswerError as error:
                silent.append(str(error))
        if time.monotonic() >= end:
            raise WrongError(
                f"the directory did not answer within {wait_s:g} s: {'; '.join(silent)}; look at "
                "the server, its address in directory_servers (in the definition "
                "users.directory.servers), and firewalls between it and this host"
            )
        time.sleep(2)


# -- sssd ----------------------------------------------------------------------------------------


def entries(database: str, name: str, run: Run) -> list[str]:
    """Return the fields that sssd has for a name of `passwd` or `group`; empty: it has none."""
    answer = run(["getent", "--service=sss", "--", database, name], {})
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    return lines[0].split(":") if lines else []


def check(config: Config, run: Run = run_program, wait_s: float = SSSD_WAIT_S) -> None:
    """Return if this host knows the groups, and asks sssd who may log in.

    Raises:
        WrongError: it does not.

    """
    if "pam_sss.so" not in COMMON_ACCOUNT.read_text(encoding="utf-8"):
        raise WrongError(
            f"{COMMON_ACCOUNT} does not ask sssd, so everybody in the directory could log in; run: "
            "pam-auth-update --enable sss"
        )
    end = time.monotonic() + wait_s
    for group in config.groups:
        while not entries("group", group, run):
            if time.monotonic() >= end:
                raise WrongError(
                    f"sssd on this host does not know group {group} of the directory; "
                    "journalctl -u sssd and /var/log/sssd there say why, and `muster-directory "
                    "ask` whether the directory answers"
                )
            time.sleep(1)


# -- homes ---------------------------------------------------------------------------------------


def members(config: Config, run: Run) -> list[str]:
    """Return the logins that the groups list."""
    listed: dict[str, None] = {}
    for group in config.groups:
        fields = entries("group", group, run)
        if fields:
            listed.update(dict.fromkeys(name for name in fields[3].split(",") if name))
    return list(listed)


def local_accounts() -> dict[str, int]:
    """Return the accounts of this host with their numbers."""
    lines = LOCAL_ACCOUNTS.read_text(encoding="utf-8").splitlines()
    accounts = (line.split(":") for line in lines if line.count(":") == 6)
    return {fields[0]: int(fields[2]) for fields in accounts}


def people(config: Config, run: Run) -> Iterator["Member | str"]:
    """Yield the members of the groups; a sentence for one who can't have a home."""
    local = local_accounts()
    by_number = {uid: name for name, uid in local.items()}
    for name in members(config, run):
        fields = entries("passwd", name, run)
        if not fields or name in local:
            continue
        uid, gid = int(fields[2]), int(fields[3])
        if not LOGIN.fullmatch(name):
            yield f"{name!r} gets no home: no folder can be called so"
        elif uid in by_number:
            yield (
                f"{name} of the directory gets no home and can't log in: {uid} is the number of "
                f"{by_number[uid]} here; give one of them another"
            )
        else:
            yield Member(name, uid, gid)


def make_homes(config: Config, run: Run = run_program) -> Iterator[str]:
    """Make what is missing; yield a sentence for each home that is made or can't be made."""
    if config.home_mounted and not is_mounted(config.home_root):
        yield f"{config.home_root} is not mounted, and no home is made below it"
        return
    has_quota = bool(config.quota_gib or config.quota_files)
    file_system = FileSystem(config.home_root) if has_quota else None
    theirs = mounts_of_people()
    try:
        for person in people(config, run):
            if isinstance(person, str):
                yield person
            elif (path := f"{config.home_root}/{person.name}") in theirs:
                yield unseen(path)
            else:
                yield from make_one(config, person, file_system)
    finally:
        if file_system is not None:
            os.close(file_system.fd)


def unseen(path: str) -> str:
    """Return a sentence on a home that root can't look at."""
    return (
        f"{path} is left alone, since root can't look at it, as where a program of somebody has "
        f"mounted something (FUSE): findmnt {path} shows that, and umount --lazy {path} ends it"
    )


def make_one(config: Config, person: Member, file_system: FileSystem | None) -> Iterator[str]:
    """Make one home, and set its quota; yield what was done, or why it was not."""
    path = f"{config.home_root}/{person.name}"
    try:
        try:
            os.lstat(path)
        except FileNotFoundError:
            make_home(path, person.uid, person.gid)
            yield f"{path}: made for {person.name}"
        except PermissionError:
            yield unseen(path)
            return
        owner = os.lstat(path).st_uid
        if owner != person.uid:
            yield (
                f"{path} belongs to uid {owner}, {person.name} has {person.uid}: move it away, or "
                "change its owner if it is the home of this person"
            )
        elif file_system is not None:
            quota = Folder(
                path=path, project=person.uid, gib=config.quota_gib, files=config.quota_files
            )
            yield from limit(file_system, quota, act=True)
    except OSError as error:
        yield f"{path}: {error.strerror}; journalctl -u muster-directory-homes"


def keep_homes(config: Config, wait: Callable[[float], object] = time.sleep) -> None:
    """Make homes each minute and print what is new, until this host is to make none any more."""
    before: list[str] = []
    while config.create_homes:
        try:
            said = list(make_homes(config))
        except (OSError, subprocess.TimeoutExpired) as error:
            said = [f"{config.home_root}: {error}"]
        for sentence in said:
            if sentence not in before:
                sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()
        before = said
        wait(HOMES_EVERY_S)
        config = config_of(CONFIG.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit code."""
    commands: dict[str, Callable[[Config], None]] = {
        "ask": ask,
        "check": check,
        "homes": keep_homes,
    }
    if len(arguments) != 1 or arguments[0] not in commands:
        sys.stderr.write(f"usage: muster-directory {'|'.join(commands)}\n")
        return os.EX_USAGE
    try:
        commands[arguments[0]](config_of(CONFIG.read_text(encoding="utf-8")))
    except WrongError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}; run the role directory again\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
