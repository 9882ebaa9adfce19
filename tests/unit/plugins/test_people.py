"""What the module `people` refuses and what it does, on data."""

import errno
import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import new_home

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/people.py"
SPEC = importlib.util.spec_from_file_location("people", PATH)
assert SPEC is not None and SPEC.loader is not None
people = importlib.util.module_from_spec(SPEC)
sys.modules["people"] = people  # dataclasses look their module up.
SPEC.loader.exec_module(people)

ML = people.Group("ml-users", 20000)
ADA = people.Person("ada", 20001, "/home/ada", frozenset({"ml-users"}))
GONE = replace(ADA, present=False)
EMPTY = people.HostState({"root": people.Account(0, 0, "/root", "/bin/bash")}, {"root": 0}, {}, {})
SETTLED = people.HostState(
    {**EMPTY.accounts, "ada": people.Account(20001, 20001, "/home/ada", "/bin/bash")},
    {"root": 0, "ml-users": 20000, "ada": 20001},
    {"ml-users": frozenset({"ada"})},
    {"/home/ada": 20001},
)


def commands(person=ADA, host=SETTLED, *, create_homes=True):
    homes = {person.home: person} if create_homes and person.present else {}
    assert people.conflicts([ML], [person], host, homes) == []
    return [list(step.command) for step in people.plan([ML], [person], host, homes)]


def refused(person=ADA, host=SETTLED):
    return people.conflicts([ML], [person], host, {person.home: person})


def with_ada(host=SETTLED, **changed):
    ada = replace(SETTLED.accounts["ada"], **changed)
    return replace(host, accounts={**host.accounts, "ada": ada})


def test_a_new_person_gets_groups_first_then_the_home_then_the_account() -> None:
    assert commands(host=EMPTY) == [
        ["groupadd", "--gid", "20000", "ml-users"],
        ["groupadd", "--gid", "20001", "ada"],
        [],
        [
            *("useradd", "--uid", "20001", "--gid", "20001", "--home-dir", "/home/ada"),
            *("--no-create-home", "--password", "*", "--shell", "/bin/bash"),
            *("--groups", "ml-users", "ada"),
        ],
    ]


def test_keys_are_written_after_the_account_and_removed_before_it() -> None:
    keyed = replace(ADA, ssh_keys=("ssh-ed25519 AAAA ada ",))
    last = people.plan([ML], [keyed], EMPTY, {})[-1]
    assert (last.keys_of, last.after) == ("ada", "ssh-ed25519 AAAA ada\n")
    host = replace(SETTLED, keys={"ada": last.after})
    assert people.plan([ML], [keyed], host, {}) == []
    first, second = people.plan([ML], [replace(keyed, present=False)], host, {})
    assert (first.keys_of, first.after) == ("ada", "")
    assert second.command == ("userdel", "ada")


def test_keys_of_somebody_who_is_not_listed_vanish() -> None:
    (step,) = people.plan([ML], [ADA], replace(SETTLED, keys={"eve": "ssh-rsa AAAA eve\n"}), {})
    assert (step.keys_of, step.after) == ("eve", "")


def test_homes_are_made_only_where_wanted() -> None:
    assert commands(host=EMPTY, create_homes=False)[-1][0] == "useradd"


STRANGE = b"96 22 0:52 / /tmp/.\r\xff\xc2\x85\xc2\xa0\x1f rw - fuse.x\r  rw,user_id=20077\n"
"""A mount of somebody; its name and type have what ends a line or a word in Python."""


def test_homes_on_a_mount_wait_for_it(tmp_path, monkeypatch) -> None:
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(new_home, "MOUNTINFO", str(table))
    disk = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    home = "95 22 0:51 / /home rw,noatime - ceph 192.0.2.41:3300:/home rw\n"
    for mounts, there in (
        (disk + home, True),
        (disk + home.replace("/home rw", "/home/ada rw"), False),
        (disk, False),
    ):
        table.write_bytes(STRANGE + mounts.encode())
        assert people.is_mounted("/home") is there


@pytest.mark.parametrize(
    ("row", "is_theirs"),
    [
        ("fuse.x me rw,user_id=20001,group_id=20001", True),
        ("fuseblk /dev/sdb1 rw,user_id=1000", True),
        ("fuse.s3fs s3fs rw,user_id=998,group_id=998,allow_other", False),
        ("fuse.ceph-fuse ceph-fuse rw,user_id=0,group_id=0,allow_other", False),
        ("fuse.rclone a,user_id=20001 rw,user_id=998,group_id=998,allow_other", False),
        ("nfs4 filer:/a,user_id=20001 rw", False),
    ],
)
def test_only_what_people_have_mounted_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, is_theirs: bool
) -> None:
    """A service of the host mounts as its own account, and root can look there."""
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(new_home, "MOUNTINFO", str(table))
    table.write_bytes(STRANGE + f"97 22 0:53 / /project/ml rw shared:3 - {row}\n".encode())
    assert ("/project/ml" in new_home.mounts_of_people()) is is_theirs


def test_who_makes_no_homes_does_not_look_at_any(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(people, "owner_of", looked.append)
    monkeypatch.setattr(people, "colon_file", lambda _: {})
    people.read_host([ADA], "/nonexistent", [])
    assert looked == []
    people.read_host([ADA], "/nonexistent", ["/home/ada"])
    assert looked == ["/home/ada"]


@pytest.fixture
def home_under_a_mount(tmp_path, monkeypatch) -> str:
    """ada's own program (FUSE) has mounted something over this home, and lets nobody look there."""
    table = tmp_path / "mountinfo"
    table.write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(new_home, "MOUNTINFO", str(table))
    monkeypatch.setattr(people, "colon_file", lambda _: {})

    look = os.stat

    def refuse(path, **options):
        if path == ADA.home:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return look(path, **options)

    monkeypatch.setattr(people.os, "stat", refuse)
    return ADA.home


def test_a_home_that_root_can_t_look_at_counts_as_there(home_under_a_mount) -> None:
    """Everybody can make one so, and the run must go on: it removes keys of others."""
    owners = people.read_host([ADA], "/nonexistent", [home_under_a_mount]).home_owners
    host = replace(SETTLED, home_owners=owners)
    assert commands(host=host) == []
    (said,) = people.warnings([ADA], host, set(), [])
    assert said.startswith("/home/ada counts as there, since root can't look at it")
    assert "umount --lazy /home/ada" in said


@pytest.mark.parametrize("owner", ["20001", "0"])
def test_a_home_is_not_looked_at_where_a_program_of_somebody_is_mounted(
    home_under_a_mount, tmp_path, monkeypatch, owner
) -> None:
    """With allow_other it may say anything, or nothing for ever."""
    looked = []
    monkeypatch.setattr(people, "owner_of", looked.append)
    row = f"97 22 0:53 / {home_under_a_mount} rw - fuse.x me rw,user_id={owner}\n"
    (tmp_path / "mountinfo").write_bytes(STRANGE + row.encode())
    people.read_host([ADA], "/nonexistent", [home_under_a_mount])
    # The host's own is as good as any other file system.
    assert looked == ([home_under_a_mount] if owner == "0" else [])


def test_a_home_is_a_copy_of_the_skeleton_for_its_owner_alone(tmp_path, monkeypatch) -> None:
    skeleton = tmp_path / "skel"
    (skeleton / "bin").mkdir(parents=True)
    (skeleton / ".profile").write_text("umask 027\n")
    (skeleton / "bin/run").write_text("#!/bin/sh\n")
    (skeleton / "bin/run").chmod(0o755)
    (skeleton / "scratch").symlink_to("/scratch")
    monkeypatch.setattr(new_home, "SKEL", str(skeleton))
    (tmp_path / "home/.muster-ada/half").mkdir(parents=True)
    new_home.make_home(str(tmp_path / "home/ada"), os.getuid(), os.getgid())
    home = tmp_path / "home/ada"
    made = {str(path.relative_to(home)) for path in home.rglob("*")}
    assert made == {".profile", "bin", "bin/run", "scratch"}
    assert (home / ".profile").read_text() == "umask 027\n"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "bin/run").stat().st_mode & 0o777 == 0o755
    assert (home / "scratch").readlink() == Path("/scratch")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["ada"]


def made_under_attack(home: Path, target: Path, step: int) -> bool:
    """Make a home; at one of the steps a link takes the place of what is made.

    Return whether there was such a step.
    """
    made = home.with_name(f".muster-{home.name}")
    left = [step]

    # Python asks it before each call that touches files.
    def attack(event: str, _: object) -> None:
        if left and event.startswith(("os.", "open")) and made.is_dir():
            left[0] -= 1
            if left[0] < 0:
                left.clear()
                made.rename(made.with_name("taken"))
                made.symlink_to(target)

    sys.addaudithook(attack)
    with suppress(OSError):
        new_home.make_home(str(home), os.getuid(), os.getgid())
    attacked = not left
    left.clear()
    return attacked


def test_a_home_that_becomes_a_link_while_it_is_made_leads_nowhere(tmp_path) -> None:
    """Where root of a node is root in the homes, as on CephFS."""
    target = tmp_path / "etc"
    target.mkdir(mode=0o755)
    step = 0
    while made_under_attack(tmp_path / f"home{step}/ada", target, step):
        assert target.stat().st_mode & 0o777 == 0o755, step
        assert list(target.iterdir()) == [], step
        step += 1
    assert step > 5


def test_a_settled_host_needs_nothing() -> None:
    assert commands() == []


def test_a_membership_in_a_foreign_group_stays() -> None:
    members = {"docker": frozenset({"ada"}), "ml-users": frozenset({"ada"})}
    host = replace(SETTLED, members=members, groups={**SETTLED.groups, "docker": 990})
    assert commands(host=host) == []
    assert commands(replace(ADA, groups=frozenset()), host) == [
        ["usermod", "--groups", "docker", "ada"]
    ]


def test_a_lost_membership_is_given_back() -> None:
    assert commands(host=replace(SETTLED, members={})) == [
        ["usermod", "--groups", "ml-users", "ada"]
    ]


def test_shell_home_and_primary_group_are_set() -> None:
    ada = people.Account(20001, 100, "/srv/ada", "/bin/sh")
    host = replace(SETTLED, accounts={"ada": ada})
    home, account = commands(host=host)
    assert (home[0], home[-2:]) == ("env", ["vipw", "--quiet"])
    assert account == ["usermod", "--gid", "20001", "--shell", "/bin/bash", "ada"]


def test_only_the_home_of_one_line_is_replaced(tmp_path: Path) -> None:
    person = replace(ADA, name="a.da-1")
    (editor,) = (word for word in people._move(person) if word.startswith("EDITOR="))
    file = tmp_path / "passwd"
    others = "axda-1:x:1::a:/ada:/bin/sh\na.da-12:x:2::a:/ada:/bin/sh\n"
    file.write_text(f"{others}a.da-1:x:20001:20001:Ada, L:/srv/a:/bin/sh\n")
    subprocess.run(["sh", "-c", f"{editor.partition('=')[2]} {file}"], check=True, timeout=10)
    assert file.read_text() == f"{others}a.da-1:x:20001:20001:Ada, L:/home/ada:/bin/sh\n"


def test_an_administrator_has_a_local_home_beside_the_shared_one() -> None:
    local = replace(ADA, home="/var/lib/muster/home/ada")
    assert people.homes_of(local, "/home/ada", create_shared=True) == ["/home/ada", local.home]
    assert people.homes_of(local, "/home/ada", create_shared=False) == [local.home]
    assert people.homes_of(ADA, "/home/ada", create_shared=False) == []


def test_a_person_who_goes_keeps_the_home() -> None:
    assert commands(GONE) == [["userdel", "ada"]]


def test_an_own_group_with_other_members_goes_too() -> None:
    members = {**SETTLED.members, "ada": frozenset({"bob"})}
    assert commands(GONE, replace(SETTLED, members=members)) == [
        ["userdel", "ada"],
        ["groupdel", "ada"],
    ]


def test_a_person_with_processes_is_barred_and_removed_later() -> None:
    busy = replace(SETTLED, busy=frozenset({"ada"}))
    assert commands(GONE, busy) == [["usermod", "--expiredate", "1", "--groups", "", "ada"]]
    barred = replace(with_ada(busy, expires="1"), members={})
    assert commands(GONE, barred) == []
    (said,) = people.warnings([GONE], barred, set(), [])
    assert said.startswith("ada still has processes here, with the groups that they started with")
    assert "pkill -KILL -U ada" in said
    assert commands(GONE, replace(barred, busy=frozenset())) == [["userdel", "ada"]]


def test_an_account_that_the_definition_no_longer_names_is_known_after_its_keys_are_gone() -> None:
    bob = people.Account(20002, 20002, "/home/bob", "/bin/bash")
    accounts = {**SETTLED.accounts, "bob": bob, "ops": replace(bob, uid=998)}
    host = replace(SETTLED, accounts=accounts)
    keyed = replace(host, keys=dict.fromkeys(["ada", "bob", "ops", "root", "gone"], "ssh-rsa A\n"))
    listed = replace(host, listed=frozenset({"ada", "bob", "gone"}))
    for before in (keyed, listed):
        assert people.left([ADA], before, ["root"]) == ["bob"]
        # Of the host's own administrators, or of the directory.
        assert people.left([ADA], before, ["root", "bob"]) == []
        elsewhere = {**accounts, "bob": replace(bob, local=False)}
        assert people.left([ADA], replace(before, accounts=elsewhere), []) == []
        assert people.left([ADA, replace(GONE, name="bob")], before, []) == []
    # Other accounts of the host are nobody's business.
    assert people.left([ADA], host, []) == []
    (said,) = people.warnings([ADA], listed, set(), ["bob"])
    assert "no longer names bob (uid 20002)" in said
    assert "state: absent" in said


def test_who_could_not_log_in_last_time_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(people, "NO_LOGIN", str(tmp_path / "no-login"))
    monkeypatch.setattr(people, "colon_file", lambda _: {})
    assert people.read_host([], "/nonexistent", []).listed == frozenset()
    (tmp_path / "no-login").write_text("ada\nbob\n")
    assert people.read_host([], "/nonexistent", []).listed == {"ada", "bob"}


def test_a_person_who_comes_back_may_log_in_again() -> None:
    assert commands(host=with_ada(expires="1")) == [["usermod", "--expiredate", "", "ada"]]


def test_an_expiry_that_somebody_else_set_stays() -> None:
    assert commands(host=with_ada(expires="25000")) == []


def test_who_is_gone_is_gone() -> None:
    host = replace(EMPTY, groups={"ml-users": 20000})
    assert commands(GONE, host) == []


def test_a_name_with_another_uid_is_refused() -> None:
    assert refused(host=with_ada(uid=1003)) == [
        "ada has uid 1003 here, in the definition 20001: use 1003 there, or remove this account if "
        "it is somebody else (userdel ada) and change the owner of its files"
    ]


def test_a_stranger_of_that_name_is_not_removed() -> None:
    assert len(refused(GONE, with_ada(uid=1003))) == 1


def test_a_uid_of_somebody_else_is_refused() -> None:
    accounts = {"bob": people.Account(20001, 20001, "/home/bob", "/bin/sh")}
    assert refused(host=replace(EMPTY, accounts=accounts, groups={"bob": 20001})) == [
        "uid 20001 is taken by bob: give ada another number in the definition, or move that account"
    ]


def test_an_own_group_with_another_gid_is_refused() -> None:
    said = refused(host=replace(EMPTY, groups={"ada": 1005}))
    assert len(said) == 1
    assert said[0].startswith("group ada has gid 1005 here, wanted is 20001")


def test_a_gid_of_somebody_else_is_refused() -> None:
    assert refused(host=replace(EMPTY, groups={"lab": 20000})) == [
        "gid 20000 is taken by group lab: give ml-users another number in the definition, "
        "or move that group"
    ]


def test_a_group_with_another_gid_is_refused() -> None:
    said = refused(host=replace(EMPTY, groups={"ml-users": 1005}))
    assert len(said) == 1
    assert said[0].startswith("group ml-users has gid 1005 here, wanted is 20000")


def test_an_account_of_a_directory_service_is_refused() -> None:
    said = refused(host=with_ada(local=False))
    assert len(said) == 1
    assert "LDAP" in said[0]


def test_a_home_of_somebody_else_is_refused() -> None:
    said = refused(host=replace(EMPTY, home_owners={"/home/ada": 1005}))
    assert len(said) == 1
    assert said[0].startswith("/home/ada belongs to uid 1005, ada has 20001")


def test_an_unknown_group_is_refused() -> None:
    said = refused(replace(ADA, groups=frozenset({"mlusers"})))
    assert len(said) == 1
    assert said[0].startswith("ada is to be in group mlusers, which is neither")


def test_all_conflicts_are_said_at_once() -> None:
    host = replace(with_ada(uid=1003), groups={"ml-users": 1005})
    assert len(refused(host=host)) == 2


def test_a_missing_shell_is_said() -> None:
    assert people.warnings([ADA], SETTLED, {"/bin/zsh"}, [])[0].startswith(
        "the shell /bin/zsh is not installed here"
    )


@pytest.mark.parametrize("variable", ["SUDO_USER", "DOAS_USER"])
def test_nobody_locks_himself_out(variable: str) -> None:
    said = people.locked_out(["ada", "bob"], people.logged_in_as({variable: "ada"}))
    assert len(said) == 1
    assert "give ada `admin: true`" in said[0]
    assert people.locked_out(["bob"], people.logged_in_as({variable: "ada"})) == []
    assert people.locked_out(["ada"], people.logged_in_as({})) == []


def test_whom_the_definition_no_longer_names_is_told_so() -> None:
    (said,) = people.forgotten(["ada", "bob"], "ada")
    assert "add ada to users_home_keys" in said
    assert people.forgotten(["bob"], "ada") == []


def test_who_is_barred_is_known_also_if_the_run_ends_early(tmp_path: Path) -> None:
    """The keys, by which the account was known until now, go first."""
    listed = tmp_path / "no-login"
    people.remember([], str(listed))
    assert not listed.exists()
    people.remember(["gus"], str(listed))
    listed.write_text(f"ada\n{listed.read_text()}")
    people.remember(["eve", "gus"], str(listed))
    assert listed.read_text() == "ada\ngus\neve\n"
    assert listed.stat().st_mode & 0o777 == 0o644


def with_keys_at_home(tmp_path: Path, login: str) -> people.HostState:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/authorized_keys").write_text("ssh-ed25519 AAAA\n")
    account = people.Account(1000, 1000, str(tmp_path), "/bin/bash")
    return replace(EMPTY, accounts={login: account})


def test_who_runs_it_keeps_a_key_that_sshd_reads(tmp_path: Path) -> None:
    host = with_keys_at_home(tmp_path, "ada")
    (said,) = people.without_keys([ADA], host, ["root"], "ada")
    assert "add ada to users_home_keys" in said
    assert people.without_keys([ADA], host, ["root", "ada"], "ada") == []
    keyed = replace(ADA, ssh_keys=("ssh-ed25519 AAAA ada",))
    assert people.without_keys([keyed], host, ["root"], "ada") == []
    assert people.without_keys([ADA], EMPTY, ["root"], "ada") == []


def test_keys_in_homes_that_nodes_write_to_are_refused() -> None:
    accounts = {"ops": people.Account(1000, 1000, "/home/ops", "/bin/bash"), **EMPTY.accounts}
    host = replace(EMPTY, accounts=accounts)
    (said,) = people.in_shared_homes(["root", "ops", "nobody-there"], host, "/home")
    assert said.startswith("the home of ops, /home/ops, is in /home")
    assert people.in_shared_homes(["root", "ops"], host, "/srv/home") == []


def test_homes_of_a_server_are_known_by_their_file_system() -> None:
    disk = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    homes = "95 22 0:51 / /home rw,noatime - nfs4 192.0.2.41:/home rw\n"
    strange = os.fsdecode(STRANGE)
    for table in (disk + homes, strange + disk + homes):
        assert people.is_of_server("/home", table)
        assert people.is_of_server("/home/lab", table)
        assert not people.is_of_server("/homes", table)
    assert not people.is_of_server("/home", strange + disk)
    # On entry.
    homes = "95 22 0:51 / /home rw - autofs systemd-1 rw,fd=32\n"
    assert not people.is_of_server("/home", disk + homes)


@pytest.mark.parametrize("own", [[], ["198.51.100.0/24", "2001:db8::7"]])
@pytest.mark.parametrize(
    ("login", "peer", "refused"),
    [
        ("ada", "192.0.2.21", "from nodes"),
        ("ada", "192.0.3.1", "from nodes"),
        ("ada", "198.51.100.1", None),
        ("ada", "2001:db8::7", None),
        ("ada", "203.0.113.1", "users.admin_networks does not have this address"),
        ("ada", "2001:db8::8", "users.admin_networks does not have this address"),
        ("bob", "192.0.2.21", None),
        ("bob", "203.0.113.1", None),
        ("ada", "", None),
        ("ada", "UNKNOWN", None),
        ("ada", "fe80::1%eth0", "users.admin_networks does not have this address"),
    ],
)
def test_nobody_runs_it_from_where_sshd_would_refuse_him(
    login: str, peer: str, refused: str | None, own: list[str]
) -> None:
    params = {
        "admin_logins": ["ada", "root"],
        "refused_from": ["192.0.2.21", "192.0.3.0/24"],
        "admin_networks": own,
    }
    said = people.refused_here(params, login, peer)
    if refused is None or (refused.startswith("users.admin_networks") and not own):
        assert said == []
    else:
        [sentence] = said
        assert f"{login} runs this from {peer}, from where sshd would refuse {login}" in sentence
        assert refused in sentence


def processes(proc: Path, *chain: str) -> int:
    """Processes with these variables, each the parent of the next one; the number of the last."""
    for number, variables in enumerate(chain, start=2):
        folder = proc / str(number)
        folder.mkdir()
        (folder / "environ").write_text(variables)
        (folder / "status").write_text(f"Name:\tx\nPPid:\t{number - 1}\n")
    return len(chain) + 1


def test_where_a_run_comes_from_is_known_after_sudo_too(tmp_path: Path) -> None:
    session = "HOME=/root\0SSH_CONNECTION=192.0.2.21 50000 192.0.2.1 22\0"
    for number, chain in enumerate([[session], [session, "SUDO_USER=ops\0", ""]]):
        proc = tmp_path / str(number)
        proc.mkdir()
        assert people.peer_of(processes(proc, *chain), str(proc)) == "192.0.2.21"


def test_a_run_without_ssh_comes_from_nowhere(tmp_path: Path) -> None:
    assert people.peer_of(processes(tmp_path, "HOME=/root\0", ""), str(tmp_path)) == ""
    # A process above has ended meanwhile.
    (tmp_path / "2/status").unlink()
    assert people.peer_of(3, str(tmp_path)) == ""
