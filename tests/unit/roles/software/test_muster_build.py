"""The program that builds: what it leaves, what it says, and that it builds nothing unprotected.

What a command can do in the real service, tests/roles/test_software.py tries.
"""

import fcntl
import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from build_kit import left, put, until, with_constant
from muster_build import build as builder
from muster_build import inside, service
from muster_build.errors import RefusedError

from muster.definition.checks import software_folders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to an account, as root")

# What systemd-run would do where systemd closes nothing off.
OPEN = """while [ "${1#--}" != "$1" ]; do shift; done
exec "$@" """

Build = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def build(command_line: list[str]) -> Build:
    """Return `build(folder, command)`, which runs the program."""

    def run(root: Path, command: str, *options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command_line, *options, str(root), command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_folders_that_a_build_does_not_see_are_refused_by_a_check() -> None:
    assert service.HIDDEN == software_folders.HIDDEN


def test_the_command_fills_a_folder_that_then_is_roots(build: Build, apps: Path) -> None:
    root = apps / "python/3"
    done = build(root, f"stat -c %u {root}; echo new >{root}/what; chown nobody {root}/what")
    assert (done.returncode, done.stdout, done.stderr) == (0, "65534\n", "")
    assert left(apps) == ["python", "python/3", "python/3/what"]
    assert {path.lstat().st_uid for path in (root, root / "what")} == {0}


def test_files_are_on_the_disk_before_a_release_counts_as_whole(
    command_line: list[str], apps: Path, programs: Path
) -> None:
    """After a power failure they would be empty, and nothing would build the release again."""
    root = apps / "tool"
    words = with_constant(command_line, f"programs.PATH = {str(programs)!r} + ':/usr/bin:/bin'")
    put(programs / "sync", f'ls {apps} >{programs}/then; echo "$@" >>{programs}/then')
    done = subprocess.run([*words, str(root), f"touch {root}/file"], timeout=60, check=False)
    assert done.returncode == 0
    then = (programs / "then").read_text()
    assert then == f"tool\ntool.building\n--file-system {root}\n"
    assert left(apps) == ["tool", "tool/file"]


def test_what_is_there_is_not_touched(build: Build, apps: Path) -> None:
    (apps / "tool").mkdir()
    refused = build(apps / "tool", f"touch {apps}/tool/new")
    assert refused.returncode == 1
    assert refused.stderr == f"{apps}/tool is there already; remove it to build it again\n"
    assert left(apps) == ["tool"]


def test_nothing_is_built_where_the_shared_folder_is_not_mounted(
    command_line: list[str], apps: Path, tmp_path: Path
) -> None:
    fstab = tmp_path / "fstab"
    fstab.write_text(f"s:/apps {apps} nfs rw 0 0\n")
    # Of a packed release.
    (apps / "tool").symlink_to(tmp_path / "elsewhere")
    words = with_constant(command_line, f"build.not_mounted.__globals__['FSTAB'] = {str(fstab)!r}")
    done = subprocess.run(
        [*words, f"{apps}/tool", "true"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{apps}/tool was not built: {apps} is not mounted, though")
    assert left(apps) == ["tool"]


def test_nothing_is_built_while_the_server_of_the_shared_folder_is_away(
    command_line: list[str], apps: Path, programs: Path
) -> None:
    put(programs / "stat", "exec sleep 20")
    words = with_constant(command_line, "build.not_mounted.__globals__['SECONDS'] = 0.5")
    begin = time.monotonic()
    done = run(words, apps / "tool", f"touch {apps}/tool/x")
    assert time.monotonic() - begin < 15
    assert (done.returncode, done.stderr) == (
        1,
        f"{apps}/tool was not built: {apps} does not answer within 0.5 s; bring the server that "
        "has it back, and run again\n",
    )
    assert left(apps) == []


def test_links_are_not_followed_and_rights_of_the_account_do_not_become_roots(
    build: Build, apps: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    os.chown(outside, 65534, 65534)
    outside.chmod(0o666)
    command = (
        f"ln -s {outside} link; ln -s {tmp_path} folder; cp /bin/true run; chmod 6755 run; "
        "mkdir open; chmod 3777 open; touch open/file; chmod 666 open/file; chmod 777 ."
    )
    root = apps / "tool"
    assert build(root, f"cd {root}; {command}; chown -Rh nobody {root}").returncode == 0
    assert (outside.stat().st_uid, stat.S_IMODE(outside.stat().st_mode)) == (65534, 0o666)
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*")}
    assert modes == {"link": 0o777, "folder": 0o777, "run": 0o755, "open": 0o1755, "file": 0o644}
    assert {path.lstat().st_uid for path in (root, *root.rglob("*"))} == {0}
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_all_can_read_what_was_built_and_run_what_is_a_program(build: Build, apps: Path) -> None:
    """An archive may have files for its owner alone, and that is root in the end."""
    root = apps / "tool"
    command = (
        "umask 077; mkdir -p bin/deep; touch text bin/run bin/deep/data bin/half; "
        "chmod 700 bin/run; chmod 744 bin/half; chmod 500 bin/deep; chmod 700 ."
    )
    assert build(root, f"cd {root}; {command}").returncode == 0
    modes = {
        str(path.relative_to(apps)): stat.S_IMODE(path.stat().st_mode) for path in apps.rglob("*")
    }
    assert modes == {
        "tool": 0o755,
        "tool/text": 0o644,
        "tool/bin": 0o755,
        "tool/bin/run": 0o755,
        "tool/bin/half": 0o755,
        "tool/bin/deep": 0o555,
        "tool/bin/deep/data": 0o644,
    }


def test_a_release_is_as_old_as_its_build(build: Build, apps: Path) -> None:
    """Releases are ordered by it; `cp -a` and tar give a folder the time of another one."""
    root = apps / "tool"
    before = time.time()
    assert build(root, f"touch {root}/x; touch --date=2001-01-01 {root}").returncode == 0
    # The kernel's clock of files is a few milliseconds behind.
    assert root.stat().st_mtime > before - 1


def test_a_disk_that_gets_full_under_the_log_is_one_sentence(
    command_line: list[str], apps: Path, tmp_path: Path
) -> None:
    root = apps / "tool"
    log = tmp_path / "lock.logs" / name_of_log(root)
    log.parent.mkdir()
    log.symlink_to("/dev/full")
    failed = run(command_line, root, f"touch {root}/x; echo much")
    assert failed.returncode == 1
    assert failed.stderr == (
        f"{root} was not built: {log}: No space left on device; fix the cause and run again\n"
    )
    assert left(apps) == []


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_neither_file_nor_folder_nor_link_is_refused(
    build: Build, apps: Path, kind: str
) -> None:
    make = {
        "fifo": "mkfifo special",
        "socket": "python3 -c 'import socket as s; s.socket(s.AF_UNIX).bind(\"special\")'",
    }[kind]
    refused = build(apps / "tool", f"cd {apps}/tool; {make}")
    assert refused.returncode == 1
    assert f"it left {apps}/tool/special, which is neither a file nor a folder" in refused.stderr
    assert left(apps) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("touch {root}/x; echo no space >&2; exit 3", "exit status 3: no space; the command was"),
        ("touch {root}/x; false; echo unreached", "exit status 1; the command was"),
        ("true", "the command ended well, but put nothing into the folder"),
        (
            "echo 'cause: error sending request for url (https://pip.example/simple/six/)'; false",
            "(packages come from PyPI, or the mirror that /etc/uv/uv.toml of this host names)",
        ),
        ("echo Read-only file system; false", "(a build can write to its folder and to $TMPDIR"),
    ],
    ids=["fails", "fails in the middle", "makes nothing", "finds no index", "wants more"],
)
def test_a_failed_build_leaves_nothing_and_says_why(
    build: Build, apps: Path, command: str, said: str
) -> None:
    text = command.format(root=apps / "tool")
    failed = build(apps / "tool", text)
    assert failed.returncode == 1
    assert f"{apps}/tool was not built and nothing is left of it: " in failed.stderr
    assert said in failed.stderr
    assert f"`{text}`" in failed.stderr
    assert left(apps) == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("Finished with result: timeout", "it did not end within 7 s"),
        ("processes terminated with: code=killed/status=KILL", "ended by signal KILL"),
    ],
    ids=["timeout", "signal"],
)
def test_what_systemd_tells_about_the_end_is_said(
    build: Build, apps: Path, programs: Path, told: str, said: str
) -> None:
    put(programs / "systemd-run", f"echo 'muster-build: closed off'; echo '{told}' >&2; exit 1")
    assert said in build(apps / "tool", "true", "--timeout=7").stderr
    assert left(apps) == []


def test_a_build_that_was_killed_ends_and_is_started_again(
    build: Build, apps: Path, programs: Path
) -> None:
    root = apps / "tool"
    assert build(root, f"echo half >{root}/half; kill -9 $PPID").returncode != 0
    until(lambda: (programs / "calls").read_text().count("stop muster-build.service") == 2)
    assert left(apps) == ["tool", "tool.building", "tool/half"]

    until(lambda: build(root, f"echo new >{root}/what").returncode == 0)
    assert left(apps) == ["tool", "tool/what"]


def test_a_build_ends_when_nobody_reads_what_it_says(
    command_line: list[str], apps: Path, programs: Path
) -> None:
    # Its own output does not tell: it prints nothing.
    root = apps / "tool"
    with subprocess.Popen(
        [*command_line, str(root), f"touch {root}/half; exec sleep 20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        until((root / "half").exists)
        process.stdout.close()
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None
        assert "interrupted; run again" in process.stderr.read()
    assert left(apps) == []
    assert (programs / "calls").read_text().count("stop muster-build.service") == 2


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("apps/tool.building", "/apps/tool is being built by another run; wait for it"),
        ("lock", "another build runs on this host; wait for it, then run again"),
    ],
    ids=["of this folder", "on this host"],
)
def test_two_builds_do_not_meet(
    build: Build, apps: Path, tmp_path: Path, lock: str, said: str
) -> None:
    (apps / "tool").mkdir()
    with (tmp_path / lock).open("w") as stream:
        if lock == "lock":
            (apps / "tool").rmdir()
        fcntl.flock(stream, fcntl.LOCK_EX)
        refused = build(apps / "tool", "true")
    assert refused.returncode == 1
    assert said in refused.stderr
    assert (apps / "tool").is_dir() == (lock != "lock")


def test_where_a_build_is_not_closed_off_its_command_never_starts(
    build: Build, apps: Path, programs: Path, tmp_path: Path
) -> None:
    put(programs / "systemd-run", OPEN)
    refused = build(apps / "tool", f"touch {tmp_path}/started")
    assert refused.returncode == 1
    assert "systemd does not close builds off on this host: it would have rights of root; " in (
        refused.stderr
    )
    assert not (tmp_path / "started").exists()
    assert left(apps) == []


def test_a_service_that_does_not_start_says_why(build: Build, apps: Path, programs: Path) -> None:
    put(programs / "systemd-run", "echo 'System has not been booted with systemd' >&2; exit 1")
    refused = build(apps / "tool", "true")
    assert "on this host: System has not been booted with systemd; see journalctl" in refused.stderr
    assert left(apps) == []


def test_a_time_that_is_over_before_the_command_began_is_said(
    build: Build, apps: Path, programs: Path
) -> None:
    put(programs / "systemd-run", "echo 'Finished with result: timeout' >&2; exit 1")
    ended = build(apps / "x/1", "true")
    assert ended.returncode != 0
    assert "it did not end within" in ended.stderr
    assert "does not close builds off" not in ended.stderr


def test_a_folder_that_systemd_would_read_otherwise_is_refused(build: Build, apps: Path) -> None:
    for name in ("a b", "a:b", "../tool", "$HOME"):
        refused = build(apps / name, "true")
        assert "can't be the folder of a build" in refused.stderr
    assert left(apps) == []


def test_without_the_account_nothing_is_built(
    apps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(service, "ACCOUNT", "nobody-of-that-name")
    with pytest.raises(RefusedError, match=r"no account .*; run the role software"):
        builder.build(str(apps / "tool"), "true", None, None, None)
    assert left(apps) == []


def logs(tmp_path: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (tmp_path / "lock.logs").iterdir()}


def name_of_log(root: Path) -> str:
    return str(root).strip("/").replace("/", "_") + ".log"


def test_what_was_built_is_looked_at_when_nothing_can_change_it_any_more(
    build: Build, apps: Path, tmp_path: Path
) -> None:
    root = apps / "tool"
    verify = f"stat -c %u {root}/what; cat {root}.building; echo it works"
    done = build(root, f"echo built; touch {root}/what", "--verify", verify)
    assert (done.returncode, done.stdout) == (0, "built\n0\nit works\n")
    assert left(apps) == ["tool", "tool/what"]
    lines = logs(tmp_path)[name_of_log(root)].splitlines()
    assert lines == [f"+ echo built; touch {root}/what", "built", f"+ {verify}", "0", "it works"]


def test_what_does_not_work_is_removed_and_says_why(build: Build, apps: Path) -> None:
    root = apps / "tool"
    failed = build(root, f"touch {root}/x", "--verify", "echo no library libx.so.1; exit 1")
    assert failed.returncode == 1
    assert failed.stderr == (
        f"{root} was built, but does not work, so it was removed and is not published: exit status "
        "1: no library libx.so.1; fix its definition and run again\n"
    )
    assert left(apps) == []


def test_the_log_of_a_failed_build_stays_and_only_root_reads_it(
    build: Build, apps: Path, tmp_path: Path
) -> None:
    build(apps / "tool", "echo the reason; exit 1")
    [(name, text)] = logs(tmp_path).items()
    assert (name, text) == (
        name_of_log(apps / "tool"),
        "+ echo the reason; exit 1\nthe reason\n",
    )
    assert stat.S_IMODE((tmp_path / "lock.logs" / name).stat().st_mode) == 0o600
    build(apps / "tool", "echo another; exit 1")
    assert "another" in logs(tmp_path)[name]
    assert "the reason" not in logs(tmp_path)[name]


def run(command_line: list[str], root: Path, command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*command_line, str(root), command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_log_has_an_end(command_line: list[str], apps: Path, tmp_path: Path) -> None:
    small = with_constant(command_line, "service.LOG_BYTES = 1000")
    root = apps / "tool"
    done = run(small, root, f"touch {root}/x; for n in 1 2 3; do printf %65536d 1; sleep 0.1; done")
    assert done.returncode == 0
    assert len(done.stdout) == 3 * 65536
    assert 1000 < len(logs(tmp_path)[name_of_log(root)]) < 2 * 65536


def test_a_build_ends_before_a_disk_is_full(
    command_line: list[str], apps: Path, programs: Path
) -> None:
    full = with_constant(command_line, "room.SPARED_BYTES = 2**70")
    root = apps / "tool"
    failed = run(full, root, f"touch {root}/half; sleep 1")
    assert failed.returncode == 1
    assert f"the file system of {root} has less than" in failed.stderr
    assert "MiB left, which a build leaves to others; make room there; " in failed.stderr
    assert left(apps) == []
    assert "stop muster-build.service" in (programs / "calls").read_text()


def test_a_folder_that_can_not_be_made_is_named(build: Build, apps: Path) -> None:
    (apps / "file").touch()
    assert f"{apps}/file" in build(apps / "file/tool", "true").stderr


@pytest.fixture
def answering() -> Iterator[int]:
    """A server in place of the metadata server; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_metadata_server_that_resolves_names_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def denied() -> list[str]:
        return [text for text in service.properties("/apps/x", 9) if "IPAddress" in text]

    monkeypatch.setattr(inside, "name_servers", lambda: ["127.0.0.53"])
    assert denied() == ["IPAddressDeny=169.254.169.254 fd20:ce::254"]
    monkeypatch.setattr(inside, "name_servers", lambda: ["169.254.169.254"])
    assert denied() == ["IPAddressDeny=fd20:ce::254"]


def test_a_mount_with_a_strange_name_is_read_as_a_whole(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    row = "36 24 0:31 / /tmp/.\r\x85\xa0\u2028\udcff\x1f rw - fuse.x\r  rw,user_id=20077\n"
    table.write_bytes(os.fsencode(f"24 1 8:1 / / ro,nosuid shared:1 - ext4 /dev/sda1 rw\n{row}"))
    assert [*inside.mounts(str(table))] == [
        ("/", ["ro", "nosuid"], "ext4"),
        ("/tmp/.\r\x85\xa0\u2028\\xff\x1f", ["rw"], "fuse.x\r"),
    ]


def test_such_a_server_must_refuse_to_give_a_token(
    answering: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.create_connection

    def at(port: int) -> bool:
        monkeypatch.setattr(
            socket, "create_connection", lambda _, timeout: connect(("127.0.0.1", port), timeout)
        )
        return bool(inside.is_answered("169.254.169.254"))

    assert at(answering)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # not listening: a connection is refused
        assert not at(closed.getsockname()[1])
