"""What muster-directory says of servers and of sssd, and which homes it makes."""

import errno
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/directory/files/muster_directory.py"


def loaded() -> ModuleType:
    """The program with the two files that the role installs beside it."""
    sys.path.insert(0, str(PROGRAM.parent))
    try:
        spec = importlib.util.spec_from_file_location("muster_directory", PROGRAM)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["muster_directory"] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(PROGRAM.parent))
    return module


directory = loaded()
CONFIG = directory.Config(
    servers=("ldaps://ldap1.example.org", "ldap://ldap2.example.org"),
    base="dc=example,dc=org",
    bind_dn="cn=hosts,dc=example,dc=org",
    ca="/etc/muster/directory-ca.pem",
    groups=("hpc",),
    ldap_schema="rfc2307",
    home_root="/home",
    create_homes=True,
    home_mounted=False,
    quota_gib=0,
    quota_files=0,
)
FOUND = (0, "dn: cn=hpc,dc=example,dc=org\n\n", "")


class Programs:
    """In the place of the programs that are run: an answer by the last words of a command."""

    def __init__(self, **answers: tuple[int, str, str]) -> None:
        self.answers = answers
        self.commands: list[Sequence[str]] = []
        self.settings: list[Mapping[str, str]] = []

    def __call__(
        self, command: Sequence[str], settings: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        self.commands.append(command)
        self.settings.append(settings)
        words = [word for word in self.answers if any(word in part for part in command)]
        code, out, err = self.answers[words[-1]] if words else (2, "", "")
        return subprocess.CompletedProcess(command, code, out, err)


def open_door(_: str) -> None:
    """A server that takes connections."""


def shut_door(server: str) -> None:
    """One that does not."""
    raise ConnectionRefusedError(111, f"Connection refused by {server}")


def said(programs: Programs, config: "directory.Config" = CONFIG, door: object = open_door) -> str:
    with pytest.raises(directory.WrongError) as error:
        directory.ask(config, programs, door, wait_s=0)
    return str(error.value)


def test_a_server_that_has_the_groups_is_enough() -> None:
    programs = Programs(ldapsearch=FOUND)
    directory.ask(CONFIG, programs, open_door, wait_s=0)
    assert [command[command.index("-H") + 1] for command in programs.commands] == [
        "ldaps://ldap1.example.org",
        "ldaps://ldap1.example.org",
    ]
    assert "(&(objectClass=posixGroup)(cn=hpc))" in programs.commands[1]


def test_the_next_server_is_asked_where_the_first_is_away() -> None:
    def first_is_away(server: str) -> None:
        if "ldap1" in server:
            shut_door(server)

    programs = Programs(ldapsearch=FOUND)
    directory.ask(CONFIG, programs, first_is_away, wait_s=0)
    # Without TLS from the first byte StartTLS must succeed.
    assert "-ZZ" in programs.commands[0]


def test_certificates_are_verified_and_the_password_is_no_argument() -> None:
    programs = Programs(ldapsearch=FOUND)
    directory.ask(CONFIG, programs, open_door, wait_s=0)
    assert programs.settings[0]["LDAPTLS_REQCERT"] == "demand"
    assert programs.settings[0]["LDAPTLS_CACERT"] == CONFIG.ca
    command = programs.commands[0]
    assert command[command.index("-y") + 1] == "/etc/muster/directory-password"
    anonymous = Programs(ldapsearch=FOUND)
    directory.ask(replace(CONFIG, bind_dn=""), anonymous, open_door, wait_s=0)
    assert "-y" not in anonymous.commands[0]


def test_without_an_answer_the_servers_are_named() -> None:
    sentence = said(Programs(), door=shut_door)
    assert "the directory did not answer within 0 s" in sentence
    assert "no connection to ldaps://ldap1.example.org: Connection refused" in sentence
    assert "no connection to ldap://ldap2.example.org" in sentence
    assert "firewalls" in sentence


def clock(sleep: Callable[[float], object]) -> SimpleNamespace:
    """The module `time` of this program alone: threads that other tests have left sleep, too."""
    return SimpleNamespace(monotonic=time.monotonic, sleep=sleep)


def test_a_server_that_comes_while_it_is_waited_for_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(directory, "time", clock(waited.append))

    def comes_later(server: str) -> None:
        if len(waited) < 2:
            shut_door(server)

    directory.ask(CONFIG, Programs(ldapsearch=FOUND), comes_later, wait_s=60)
    assert len(waited) == 2


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((49, "", "ldap_bind: Invalid credentials (49)"), "does not take the password of cn=hosts"),
        ((32, "", "No such object (32)"), "has no entry dc=example,dc=org"),
        ((50, "", "Insufficient access (50)"), "refused to answer: Insufficient access (50)"),
        ((0, "", ""), "shows no group hpc below dc=example,dc=org to cn=hosts"),
    ],
)
def test_what_a_server_refuses_is_said_at_once(
    answer: tuple[int, str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "time", clock(lambda _: pytest.fail("waits")))
    with pytest.raises(directory.WrongError, match=r"ldaps://ldap1\.example\.org") as error:
        directory.ask(CONFIG, Programs(ldapsearch=answer), open_door, wait_s=60)
    assert sentence in str(error.value)


def test_a_certificate_that_is_not_trusted_is_told_from_a_server_that_is_away() -> None:
    answer = (255, "", "ldap_sasl_bind(SIMPLE): Can't contact LDAP server (-1)\n")
    sentence = said(Programs(ldapsearch=answer))
    assert "ldaps://ldap1.example.org takes connections and no encryption" in sentence
    assert "/etc/muster/directory-ca.pem" in sentence


@pytest.mark.parametrize(
    ("schema", "attributes", "sentence"),
    [
        ("rfc2307", ["memberUid"], ""),
        ("rfc2307bis", ["member"], ""),
        # A group without members, and one that has both.
        ("rfc2307", [], ""),
        ("rfc2307", ["MEMBER", "memberuid"], ""),
        ("rfc2307", ["member"], "set users.directory.ldap_schema: rfc2307bis"),
        ("rfc2307bis", ["memberUid"], "set users.directory.ldap_schema: rfc2307"),
    ],
)
def test_a_group_whose_members_are_named_otherwise_would_let_nobody_in(
    schema: str, attributes: list[str], sentence: str
) -> None:
    answer = FOUND[1].strip() + "".join(f"\n{name}:" for name in attributes) + "\n\n"
    programs, config = Programs(ldapsearch=(0, answer, "")), replace(CONFIG, ldap_schema=schema)
    if not sentence:
        directory.ask(config, programs, open_door, wait_s=0)
        return
    told = said(programs, config)
    assert f"names the members of group hpc by {attributes[0]}" in told
    assert told.endswith(sentence)


def test_a_name_of_a_group_is_no_condition() -> None:
    assert directory.escaped("a*(b)\\") == r"a\2a\28b\29\5c"


# -- sssd -----------------------------------------------------------------------------------------


@pytest.fixture
def pam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "common-account"
    file.write_text("account [default=bad success=ok user_unknown=ignore] pam_sss.so\n")
    monkeypatch.setattr(directory, "COMMON_ACCOUNT", file)
    return file


def test_a_host_that_knows_the_groups_passes(pam: Path) -> None:
    directory.check(CONFIG, Programs(hpc=(0, "hpc:*:31001:eve\n", "")), wait_s=0)


def test_a_group_that_sssd_does_not_know_is_named(pam: Path) -> None:
    with pytest.raises(directory.WrongError, match="does not know group hpc"):
        directory.check(CONFIG, Programs(), wait_s=0)


def test_a_host_whose_pam_asks_nobody_who_may_log_in_is_refused(pam: Path) -> None:
    pam.write_text("account required pam_unix.so\n")
    with pytest.raises(directory.WrongError, match="pam-auth-update --enable sss"):
        directory.check(CONFIG, Programs(hpc=(0, "hpc:*:31001:eve\n", "")), wait_s=0)


# -- homes ----------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of homes on a host whose own person is ada."""
    accounts = tmp_path / "passwd"
    accounts.write_text("root:x:0:0:root:/root:/bin/bash\nada:x:20001:20001::/home/ada:/bin/bash\n")
    monkeypatch.setattr(directory, "LOCAL_ACCOUNTS", accounts)
    homes = tmp_path / "home"
    homes.mkdir()
    return homes


def of_group(members: str, **people: int) -> Programs:
    gid = os.getgid()
    entries = {
        name: (0, f"{name}:*:{uid}:{gid}::/home/{name}:/bin/bash\n", "")
        for name, uid in people.items()
    }
    return Programs(hpc=(0, f"hpc:*:31001:{members}\n", ""), **entries)


def made(host: Path, programs: Programs, **changed: object) -> list[str]:
    config = replace(CONFIG, home_root=str(host), **changed)  # type: ignore[arg-type]
    return list(directory.make_homes(config, programs))


def test_a_member_gets_a_home_once(host: Path) -> None:
    programs = of_group("eve", eve=os.getuid() or 30001)
    assert made(host, programs) == [f"{host}/eve: made for eve"]
    assert (host / "eve").stat().st_mode & 0o777 == 0o700
    assert made(host, programs) == []


def test_who_is_the_host_s_own_or_has_such_a_number_gets_none(host: Path) -> None:
    sentences = made(host, of_group("ada,twin,gone", ada=30003, twin=20001))
    assert sentences == [
        "twin of the directory gets no home and can't log in: 20001 is the number of ada here; "
        "give one of them another"
    ]
    assert list(host.iterdir()) == []


def test_a_login_that_is_no_name_of_a_folder_gets_none(host: Path) -> None:
    programs = of_group("../eve", **{"../eve": 30001})
    assert made(host, programs) == ["'../eve' gets no home: no folder can be called so"]
    assert list(host.iterdir()) == []


def test_a_home_of_somebody_else_stays(host: Path) -> None:
    (host / "eve").mkdir()
    (sentence,) = made(host, of_group("eve", eve=os.getuid() + 1))
    assert sentence.startswith(f"{host}/eve belongs to uid {os.getuid()}, eve has")


def test_a_home_that_root_can_t_look_at_is_left_alone(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner's own program (FUSE) has mounted something over it, and lets nobody look there."""
    look = os.lstat

    def refuse(path: str, **options: int) -> os.stat_result:
        if path == f"{host}/eve":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return look(path, **options)

    monkeypatch.setattr(directory.os, "lstat", refuse)
    monkeypatch.setattr(directory, "make_home", lambda *_: pytest.fail("makes it again"))
    (sentence,) = made(host, of_group("eve", eve=os.getuid() or 30001))
    assert sentence.startswith(f"{host}/eve is left alone, since root can't look at it")


def test_a_home_where_a_program_of_somebody_is_mounted_is_left_alone(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With allow_other it may say anything, or nothing for ever."""
    table = tmp_path / "mountinfo"
    table.write_text(f"97 22 0:53 / {host}/eve rw - fuse.x me rw,user_id=30001\n")
    monkeypatch.setattr(sys.modules["new_home"], "MOUNTINFO", str(table))
    uid = os.getuid() or 30001
    sentence, other = made(host, of_group("eve,kim", eve=uid, kim=uid))
    assert sentence.startswith(f"{host}/eve is left alone, since root can't look at it")
    assert other == f"{host}/kim: made for kim"


def test_while_the_homes_are_not_mounted_none_is_made(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("30 1 8:1 / / rw - ext4 /dev/vda1 rw\n")
    monkeypatch.setattr(sys.modules["new_home"], "MOUNTINFO", str(table))
    programs = of_group("eve", eve=os.getuid() or 30001)
    assert made(host, programs, home_mounted=True) == [
        f"{host} is not mounted, and no home is made below it"
    ]
    # A mount of somebody is before it, with a name that is no text.
    row = f"30 1 0:40 / {host} rw - nfs4 filer:/home rw\n"
    table.write_bytes(b"29 1 0:39 / /tmp/.\r\xff rw - fuse.x x rw\n" + row.encode())
    assert made(host, programs, home_mounted=True) == [f"{host}/eve: made for eve"]


def test_a_home_gets_its_quota_each_time(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = []

    def limit(_: object, folder: dict[str, object], *, act: bool) -> Iterator[str]:
        limited.append((folder, act))
        yield from ()

    monkeypatch.setattr(directory, "limit", limit)
    uid = os.getuid() or 30001
    for _ in range(2):
        made(host, of_group("eve", eve=uid), quota_gib=50)
    quota = {"path": f"{host}/eve", "project": uid, "gib": 50, "files": 0}
    assert limited == [(quota, True), (quota, True)]


def test_homes_are_made_until_the_host_is_to_make_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "directory.json"
    monkeypatch.setattr(directory, "CONFIG", file)
    monkeypatch.setattr(directory, "make_homes", lambda _: iter(["the same each minute"]))
    rounds: list[float] = []

    def wait(seconds: float) -> None:
        rounds.append(seconds)
        names = ("servers", "base", "bind_dn", "ca", "groups", "ldap_schema", "home_root")
        values = {name: getattr(CONFIG, name) for name in (*names, "home_mounted")}
        values |= {"quota_gib": 0, "quota_files": 0, "create_homes": len(rounds) < 3}
        file.write_text(json.dumps(values))

    directory.keep_homes(CONFIG, wait)
    assert rounds == [60, 60, 60]
    assert capsys.readouterr().out == "the same each minute\n"


def test_the_role_s_settings_are_read() -> None:
    text = (PROGRAM.parents[1] / "templates/etc/muster/directory.json.j2").read_text()
    keys = {name for name in directory.Config.__dataclass_fields__ if f"'{name}': " in text}
    assert keys == {*directory.Config.__dataclass_fields__}
