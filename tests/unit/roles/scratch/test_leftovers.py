"""Which processes belong to a job, and to whom a node is for jobs alone."""

import errno
import importlib.util
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.definition.schema.people import FIRST_CONTAINER_ID

PROGRAM = Path(__file__).parents[4] / "roles/scratch/files/usr/local/lib/muster/leftovers.py"
SPEC = importlib.util.spec_from_file_location("leftovers", PROGRAM)
assert SPEC is not None and SPEC.loader is not None
leftovers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(leftovers)

# As 22.05 and 24.11 make them, and what slurmd starts before it is in one of them.
SLURM_S = [
    "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
    "0::/system.slice/n1_slurmstepd.scope/job_7/step_extern/user/task_special",
    "1:name=systemd:/user.slice\n6:freezer:/slurm_n1/uid_20001/job_7/step_extern",
    "0::/system.slice/slurmd.service",
    "0::/system.slice/slurmstepd.scope/system",
]
STRAY = [
    "0::/user.slice/user-20001.slice/user@20001.service/app.slice/job.service",
    "0::/system.slice/cron.service",
    "0::/system.slice/ssh.service\n6:freezer:/",
    "0::/user.slice/job_7.slice/x.service",
    "0::/user.slice/my-slurmd.service",
]


@pytest.mark.parametrize(
    ("groups", "is_stray"), [*((g, False) for g in SLURM_S), *((g, True) for g in STRAY)]
)
def test_what_is_in_no_job(monkeypatch: pytest.MonkeyPatch, groups: str, is_stray: bool) -> None:
    monkeypatch.setattr(leftovers, "_read", lambda _: groups)
    assert leftovers._is_stray(1) is is_stray


def test_a_process_that_has_ended_is_no_stray() -> None:
    assert not leftovers._is_stray(2**22 + 1)


def test_a_process_is_found_by_who_started_it() -> None:
    assert os.getpid() in list(leftovers.processes(os.getuid()))
    assert os.getpid() not in list(leftovers.processes(20077))


def test_it_is_for_those_who_may_not_log_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed, node = tmp_path / "list", tmp_path / "node"
    monkeypatch.setattr(leftovers, "NO_LOGIN", str(listed))
    monkeypatch.setattr(leftovers, "CLOUD_NODE", str(node))
    me = os.getuid()
    assert not leftovers.works_by_jobs_alone(me)
    listed.write_text("somebody\n")
    assert not leftovers.works_by_jobs_alone(me)
    listed.write_text(f"somebody\n{pwd.getpwuid(me).pw_name}\n")
    assert leftovers.works_by_jobs_alone(me)
    # Of a directory nobody is in the list.
    directory = tmp_path / "directory"
    monkeypatch.setattr(leftovers, "NO_LOGIN_DIRECTORY", str(directory))
    assert not leftovers.works_by_jobs_alone(30001)
    directory.touch()
    assert leftovers.works_by_jobs_alone(30001)
    listed.write_text("somebody\n")
    assert not leftovers.works_by_jobs_alone(me)
    # A host's own account, whose number is that of no system user.
    accounts = tmp_path / "passwd"
    accounts.write_text("root:x:0:0::/root:/bin/sh\nops:x:30001:30001::/srv/ops:/bin/sh\n")
    monkeypatch.setattr(leftovers, "LOCAL_ACCOUNTS", str(accounts))
    assert not leftovers.works_by_jobs_alone(30001)
    assert not leftovers.works_by_jobs_alone(999)
    # On a VM everybody is a person of the cluster, but the system.
    node.touch()
    assert leftovers.works_by_jobs_alone(20077)
    assert not leftovers.works_by_jobs_alone(0)


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SLURM_JOB_UID", "SLURMD_NODENAME"])
def test_it_never_fails_an_epilog(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "20077", "SLURMD_NODENAME": "n1"}
    assert leftovers.main([], environment) == 0
    del environment[missing]
    assert leftovers.main([], environment) == 0
    assert "not in the environment" in capsys.readouterr().err


def test_what_nobody_expected_fails_no_epilog(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(leftovers, "works_by_jobs_alone", lambda _: True)
    monkeypatch.setattr(leftovers, "clean", fail)
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "20077", "SLURMD_NODENAME": "n1"}
    assert leftovers.main([], environment) == 0
    *trace, said = capsys.readouterr().err.splitlines()
    assert said == "what 20077 left may stay: ValueError('not enough values to unpack')"
    assert trace[0].startswith("Traceback")


def test_a_name_that_is_no_text_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    leftovers.say("/tmp/\udcff\r\nx stays")
    assert capsys.readouterr().err == "/tmp/\\udcff\\r\\nx stays\n"


def test_a_process_does_not_seem_dead_by_its_name() -> None:
    script = r"printf '\rState: Z' >/proc/$$/comm; echo; read _"
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert leftovers._real_uid(str(process.pid)) == os.getuid()


def test_a_process_of_the_job_that_is_still_dying_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[str] = []
    looks = iter([[99], [99], [99]])
    group = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
    monkeypatch.setattr(leftovers, "processes", lambda _: iter(next(looks, [])))
    monkeypatch.setattr(leftovers, "_read", lambda _: group)
    thing = leftovers.Leftover("/tmp/mine", 1.0, ["rm"])
    monkeypatch.setattr(leftovers, "leftovers", lambda _: iter([thing]))
    monkeypatch.setattr(leftovers, "mounts", lambda _: iter([]))
    monkeypatch.setattr(leftovers, "_run", lambda command, _: _answer(command, removed))
    leftovers.clean(20077, "7", "n1")
    assert removed == ["rm"]


def test_what_another_job_runs_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0"
    monkeypatch.setattr(leftovers, "processes", lambda _: iter([99]))
    monkeypatch.setattr(leftovers, "_read", lambda _: group)
    monkeypatch.setattr(leftovers, "leftovers", lambda _: pytest.fail("looked at files"))
    leftovers.clean(20077, "7", "n1")


def test_squeue_is_asked_again_when_it_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int | None] = [None, 1, 0]

    def run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        code = answers.pop(0)
        if code is None:
            raise subprocess.TimeoutExpired(command, seconds)
        return subprocess.CompletedProcess(command, code, "7\n8\n", "no controller")

    monkeypatch.setattr(leftovers, "_run", run)
    monkeypatch.setattr(leftovers, "PAUSE_S", 0.0)
    assert leftovers.other_jobs(20077, "7", "n1") == ["8"]
    answers += [1] * leftovers.TRIES
    assert leftovers.other_jobs(20077, "7", "n1") is None
    assert answers == []


CONTAINERS = f"""\
20077:{FIRST_CONTAINER_ID}:65536
somebody:{FIRST_CONTAINER_ID + 65536}:65536
20077:100000:65536
20077:nonsense
"""
"""The third is as useradd writes it: people of a directory may have such numbers."""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for all, and numbers of containers."""
    numbers, folder = tmp_path / "subuid", tmp_path / "tmp"
    numbers.write_text(CONTAINERS)
    folder.mkdir()
    monkeypatch.setattr(leftovers, "SUBORDINATES", str(numbers))
    monkeypatch.setattr(leftovers, "FOLDERS", (str(folder),))
    monkeypatch.setattr(leftovers, "SYSV", {})
    return folder


def test_numbers_of_a_person_s_containers_are_theirs(shared: Path) -> None:
    assert leftovers.FIRST_SUBORDINATE == FIRST_CONTAINER_ID
    own = leftovers.numbers(20077)
    assert own == [range(20077, 20078), range(FIRST_CONTAINER_ID, FIRST_CONTAINER_ID + 65536)]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to others, as root")
def test_what_a_container_left_is_found(shared: Path) -> None:
    owners = (0, 20077, 100007, FIRST_CONTAINER_ID + 7, FIRST_CONTAINER_ID + 65536)
    for owner in owners:
        (shared / str(owner)).touch()
        os.chown(shared / str(owner), owner, owner)
    found = {Path(thing.name).name for thing in leftovers.leftovers(20077)}
    assert found == {"20077", str(FIRST_CONTAINER_ID + 7)}


class _Mount:
    """What a folder's list has of a mount by FUSE."""

    def __init__(self, path: str, code: int) -> None:
        self.path, self.code = path, code

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        assert not follow_symlinks
        raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOTCONN, errno.ENOENT])
def test_a_mount_of_somebody_hides_nothing_of_others(
    shared: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Of FUSE root sees nothing, and nobody does when its program has ended."""
    (shared / "mine").touch()
    me = os.getuid()
    there = list(os.scandir(shared))
    monkeypatch.setattr(leftovers.os, "scandir", lambda _: [_Mount("/tmp/m", code), *there])
    assert [Path(thing.name).name for thing in leftovers.leftovers(me)] == ["mine"]


TABLE = """\
29 1 8:1 / / rw - ext4 /dev/sda1 rw
70 29 0:50 / /tmp/a\\040b rw,nosuid - fuse.sshfs x rw,user_id=20077,group_id=20077
71 29 0:51 / /tmp/hers rw,nosuid - fuse.sshfs x rw,user_id=200779,group_id=20077
72 29 0:52 / /home/zed/m rw,nosuid - fuse.sshfs x rw,user_id=20077,group_id=20077
73 29 0:53 / /tmp/disk rw - tmpfs none rw,user_id=20077
"""


@pytest.mark.parametrize(
    "strange", ["\N{NO-BREAK SPACE}", "\x1f", "\r", "\x85", "\N{LINE SEPARATOR}", "\udcff"]
)
@pytest.mark.parametrize("folder", ["/tmp/.", "/dev/shm/.."])
def test_of_a_mount_with_a_strange_name_the_name_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, strange: str
) -> None:
    """A part of it leads to the folder for all, or out of it."""
    table = tmp_path / "mountinfo"
    path = f"{folder}{strange}\N{LATIN SMALL LETTER U WITH DIAERESIS}"
    # The kernel writes nothing in the place of an empty source.
    row = f"70 29 0:50 / {path} rw,nosuid - fuse.x{strange}  rw,user_id=20077,group_id=20077\n"
    table.write_bytes(os.fsencode(TABLE + row))
    monkeypatch.setattr(leftovers, "MOUNTINFO", str(table))
    assert list(leftovers.mounts(20077)) == ["/tmp/a b", path]


def test_what_a_person_s_programs_mounted_is_unmounted_before_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    monkeypatch.setattr(leftovers, "MOUNTINFO", str(table))
    assert list(leftovers.mounts(20077)) == ["/tmp/a b"]
    commands: list[list[str]] = []

    def run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "7\n", "")

    # It is seen when the mount is gone.
    below = iter([[], [leftovers.Leftover("/tmp/a b", 1.0, [])]])
    monkeypatch.setattr(leftovers, "leftovers", lambda _: iter(next(below)))
    monkeypatch.setattr(leftovers, "processes", lambda _: iter([]))
    monkeypatch.setattr(leftovers, "_run", run)
    monkeypatch.setattr(leftovers, "_remove", lambda paths, *_: commands.append(paths))
    leftovers.clean(20077, "7", "n1")
    assert [command[0] for command in commands] == ["squeue", leftovers.UNMOUNT[0], "/tmp/a b"]
    assert commands[1] == [*leftovers.UNMOUNT, "/tmp/a b"]


@pytest.fixture
def left(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Things of the user of the tests in a folder for all, and no other job of theirs."""
    for number in range(50):
        (shared / f"folder{number}/deep").mkdir(parents=True)
    (shared / os.fsdecode(b"-f \xff\r\n")).touch()
    (shared / "link").symlink_to(PROGRAM.parent)
    monkeypatch.setattr(leftovers, "processes", lambda _: iter([]))
    monkeypatch.setattr(leftovers, "mounts", lambda _: iter([]))
    monkeypatch.setattr(leftovers, "other_jobs", lambda *_: [])
    return shared


def test_all_that_a_person_left_goes_and_nothing_beyond(
    left: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leftovers.clean(os.getuid(), "7", "n1")
    assert list(left.iterdir()) == []
    assert PROGRAM.exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("below", ["", "/deep"])
def test_what_has_a_mount_stays_where_it_is(
    left: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    below: str,
) -> None:
    """An administrator's, as of a home: rm would empty it."""
    folder, table = left / "folder1", tmp_path / "mountinfo"
    (folder / "deep/thesis").touch()
    table.write_text(f"{TABLE}74 29 8:1 /home/ada {folder}{below} rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(leftovers, "MOUNTINFO", str(table))
    leftovers.clean(os.getuid(), "7", "n1")
    assert list(left.rglob("*")) == [folder, folder / "deep", folder / "deep/thesis"]
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"{folder} of {os.getuid()} and 0 more stay: something is mounted there"


# Nobody waits for it any more, as is meant.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_removal_that_takes_long_goes_on_where_no_new_job_looks(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = ["/bin/sh", "-c", 'sleep 2; exec "$@"', "sh", *leftovers.REMOVE]
    monkeypatch.setattr(leftovers, "REMOVE", slow)
    monkeypatch.setattr(leftovers, "REMOVAL_S", 0.2)
    begin = time.monotonic()
    leftovers.clean(os.getuid(), "7", "n1")
    assert time.monotonic() - begin < 2
    assert capsys.readouterr().err == f"what {os.getuid()} left is still being removed\n"
    assert len(list(left.glob(".muster-left-*"))) == len(list(left.iterdir())) == 52
    (left / "folder1").mkdir()
    while len(list(left.iterdir())) > 1 and time.monotonic() - begin < 30:
        time.sleep(0.1)
    assert [path.name for path in left.iterdir()] == ["folder1"]


def test_what_can_t_be_renamed_or_removed_is_told_in_one_line(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(leftovers.os, "rename", refuse)
    monkeypatch.setattr(leftovers, "REMOVE", ["/usr/bin/false"])
    leftovers.clean(os.getuid(), "7", "n1")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(str(left))
    assert said.endswith(f" of {os.getuid()} and 51 more stay: rm could not remove them")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_many_mounts_take_no_longer_than_all_that_is_removed(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [f"/tmp/{number}" for number in range(100)]
    monkeypatch.setattr(leftovers, "mounts", lambda _: iter(many))
    monkeypatch.setattr(leftovers, "UNMOUNT", [sys.executable, "-c", "import time; time.sleep(9)"])
    monkeypatch.setattr(leftovers, "REMOVAL_S", 0.5)
    begin = time.monotonic()
    leftovers.clean(os.getuid(), "7", "n1")
    assert time.monotonic() - begin < 5
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"the mount /tmp/0 of {os.getuid()} stays: ")
    assert second == f"the mount /tmp/1 of {os.getuid()} and 98 more stay: they took too long"


def _answer(command: list[str], removed: list[str]) -> subprocess.CompletedProcess[str]:
    if command[0] != "squeue":
        removed.append(command[0])
    return subprocess.CompletedProcess(command, 0, "7\n", "")
