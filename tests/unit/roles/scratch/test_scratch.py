"""The folder of a job: how it is made and removed, and what is never touched."""

import errno
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/scratch/files/usr/local/lib/muster/scratch.py"
SPEC = importlib.util.spec_from_file_location("scratch", PROGRAM)
assert SPEC is not None and SPEC.loader is not None
scratch = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scratch)

UID = 65534
LATER = math.inf
"""As if the machine had been booted after all files here were made."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody, as root")


@pytest.fixture(autouse=True)
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scratch, "MARKS", str(tmp_path / "marks"))
    return tmp_path / "marks"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def make(root: Path, job: str = "7", booted: float = 0) -> Path:
    scratch.Scratch(str(root), booted).make(job, UID)
    return root / job


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != scratch.OWN)


@as_root
def test_a_job_has_a_folder_for_its_user_alone(root: Path) -> None:
    state = make(root).stat()
    assert (state.st_uid, state.st_mode & 0o7777) == (UID, 0o700)
    assert root.stat().st_mode & 0o7777 == 0o755


@as_root
def test_a_job_that_was_queued_again_finds_an_empty_folder(root: Path) -> None:
    (make(root) / "file").touch()
    assert list(make(root).iterdir()) == []
    assert left(root) == ["7"]


@as_root
def test_only_the_job_s_own_folder_is_removed(root: Path) -> None:
    for job in ("7", "77", "8"):
        (make(root, job) / "file").touch()
    scratch.Scratch(str(root)).clear("7")
    assert left(root) == ["77", "8"]
    scratch.Scratch(str(root)).clear("7")
    assert left(root) == ["77", "8"]


@as_root
def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = make(root)
    (folder / "link").symlink_to(kept)
    (folder / "loop").symlink_to(folder)
    (root / "8").symlink_to(kept)
    for job in ("7", "8"):
        scratch.Scratch(str(root)).clear(job)
    assert left(root) == []
    assert (kept / "file").exists()
    (root / "9").symlink_to(kept)
    assert not make(root, "9").is_symlink()
    assert (kept / "file").exists()
    assert kept.stat().st_uid == 0


@as_root
def test_what_was_there_before_the_boot_is_removed(root: Path) -> None:
    make(root, "7")
    make(root, "8")
    for other in ("lost+found", "data-7", ".7", ".cache"):
        (root / other).mkdir()
    (root / ".6.1234").mkdir()
    make(root, "9", booted=LATER)
    assert left(root) == [".7", ".cache", "9", "data-7", "lost+found"]


@as_root
def test_what_vanishes_or_can_t_be_removed_does_not_keep_a_job_from_its_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(root, "7")
    monkeypatch.setattr(os, "listdir", lambda _: [".6.1234", "5", "7"])
    rename = os.rename

    def busy(source: str, target: str) -> None:
        if source.endswith("/7"):
            raise OSError(16, "Device or resource busy")
        rename(source, target)

    monkeypatch.setattr(os, "rename", busy)
    assert make(root, "9", booted=LATER).is_dir()
    assert "7 from before the boot stays: [Errno 16]" in capsys.readouterr().err
    assert (root / "7").is_dir()


@as_root
def test_what_changed_since_the_boot_is_left_alone(root: Path) -> None:
    make(root, "7")
    make(root, "9", booted=time.time() - 60)
    assert left(root) == ["7", "9"]


@as_root
def test_a_job_that_began_since_the_boot_keeps_its_folder_whatever_the_clock_said(
    root: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "tmp_fs", lambda: str(root))
    monkeypatch.setattr(scratch, "has_plugin", lambda _: True)
    monkeypatch.setattr(scratch, "private_tmp", lambda *_: str(root / ".private-tmp/node1"))
    monkeypatch.setattr(scratch, "boot_time", lambda: LATER)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(UID)}
    assert scratch.main(["prolog"], job) == 0
    assert make(root, "9", booted=LATER).is_dir()
    assert left(root) == [".private-tmp", "7", "9"]
    assert scratch.main(["epilog"], job) == 0
    assert list(marks.iterdir()) == []
    assert left(root) == [".private-tmp", "9"]


@as_root
def test_what_was_left_does_not_keep_a_job_waiting_one_by_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in ("7", "8", "77"):
        make(root, job)
    waited: list[float] = []

    def slow(_: object, __: list[str], seconds: float) -> bool:
        waited.append(seconds)
        time.sleep(min(seconds, 0.2))
        return False

    monkeypatch.setattr(scratch, "PROLOG_S", 0.3)
    monkeypatch.setattr(scratch.Scratch, "_run", slow)
    make(root, "9", booted=LATER)
    assert waited[0] > waited[1] > waited[2] == 0


@as_root
@pytest.mark.parametrize("folder", [scratch.Scratch, scratch.PrivateTmp])
def test_what_a_job_has_mounted_does_not_keep_the_node_one_by_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, folder: type
) -> None:
    """A program that serves mounts, and is stopped, keeps each removal of one waiting."""
    make(root)
    waited: list[float] = []

    def slow(_: object, __: list[str], seconds: float) -> bool:
        waited.append(seconds)
        time.sleep(min(seconds, 0.2))
        return False

    mounts = ["/m/a/b", "/m/a", "/m"]
    monkeypatch.setattr(scratch, "PROLOG_S", 0.3)
    monkeypatch.setattr(scratch, "EPILOG_S", 0.3)
    found = [mounts, []] if folder is scratch.PrivateTmp else [mounts]
    monkeypatch.setattr(scratch, "mounts_below", lambda *_, **__: found.pop(0))
    monkeypatch.setattr(scratch.Scratch, "_run", slow)
    folder(str(root)).clear("7")
    assert waited[0] > waited[1] > waited[2] == 0
    # SLURM's mounts of a private /tmp have their own few seconds.
    assert (waited[3] == 0) is (folder is scratch.Scratch)


@as_root
def test_folders_of_others_are_not_taken_for_those_of_jobs(root: Path) -> None:
    (root / "2024").mkdir(parents=True)
    root.chmod(0o755)
    (root / "2024/data").touch()
    for try_ in (make, lambda at: scratch.Scratch(str(at), LATER).check()):
        with pytest.raises(scratch.ScratchError, match="has 2024, which job 2024 would replace"):
            try_(root)
    assert (root / "2024/data").exists()
    (root / "2024").rename(root / "old")
    # As the prolog made it, before this file was there.
    (root / "41").mkdir(mode=0o700)
    make(root, "7")
    assert make(root, "2024").is_dir()


def test_a_disk_without_room_for_people_is_full(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root could still write there: ext4 keeps 5 % for it."""
    room = SimpleNamespace(f_blocks=1000, f_bavail=0, f_frsize=4096, f_favail=9)
    scratch.Scratch(str(root)).check()
    monkeypatch.setattr(scratch.os, "statvfs", lambda _: room)
    with pytest.raises(scratch.ScratchError, match="No space left on device"):
        scratch.Scratch(str(root)).check()
    with pytest.raises(scratch.ScratchError, match=r"no scratch for job 7: .*No space left"):
        make(root)
    # What has no size, such as a file system in user space.
    room.f_blocks = 0
    scratch.Scratch(str(root)).check()


@as_root
def test_a_folder_in_which_anybody_could_move_things_is_refused(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(scratch.ScratchError, match="chmod 0755"):
        make(root)
    root.chmod(0o1777)
    assert make(root).is_dir()


@as_root
def test_what_can_t_be_made_is_told_with_the_reason(root: Path) -> None:
    root.touch()
    with pytest.raises(scratch.ScratchError, match=r"no scratch for job 7: .*File exists"):
        make(root)


@as_root
def test_a_removal_that_takes_long_goes_on_by_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root)
    commands: list[list[str]] = []
    monkeypatch.setattr(scratch.Scratch, "_run", lambda _, words, __: commands.append(words))
    scratch.Scratch(str(root)).clear("7")
    assert commands[0][:4] == ["/usr/bin/rm", "-rf", "--one-file-system", "--"]
    # Hidden, so that the job may have a new one at once.
    assert left(make(root).parent) == [f".7.{os.getpid()}", "7"]


# Nobody waits for it any more, as is meant.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_command_that_does_not_end_is_left_alone(root: Path) -> None:
    begin = time.monotonic()
    assert not scratch.Scratch(str(root))._run(["/usr/bin/sleep", "5"], 0.2)
    assert time.monotonic() - begin < 4
    assert scratch.Scratch(str(root))._run(["/usr/bin/true"], 5)


def test_mounts_below_are_found_the_innermost_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        "/",
        "/scratch",
        "/scratch/.7.1/a\\040b",
        "/scratch/.7.1/a\\040b/c",
        "/scratch/.7.12/d",
    ]
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"1 2 0:3 / {path} rw - tmpfs none rw\n" for path in paths))
    monkeypatch.setattr(scratch, "MOUNTINFO", str(table))
    assert scratch.mounts_below("/scratch/.7.1") == ["/scratch/.7.1/a b/c", "/scratch/.7.1/a b"]


STRANGE = ["\N{NO-BREAK SPACE}", "\x1f", "\r", "\x85", "\N{LINE SEPARATOR}", "\udcff"]
"""Ends of a line or a word in Python, or no text, and nothing of that for the kernel."""


@pytest.mark.parametrize("strange", STRANGE)
def test_of_a_mount_with_a_strange_name_the_name_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strange: str
) -> None:
    paths = [
        "/",
        "/scratch",
        f"/scratch/.7.1/..{strange}\\040\N{LATIN SMALL LETTER U WITH DIAERESIS}",
    ]
    table = tmp_path / "mountinfo"
    rows = "".join(f"1 2 0:3 / {path} rw - tmpfs none rw\n" for path in paths)
    table.write_bytes(os.fsencode(rows))
    monkeypatch.setattr(scratch, "MOUNTINFO", str(table))
    assert scratch.mounts_below("/scratch/.7.1") == [paths[-1].replace("\\040", " ")]


def test_where_the_scratch_folder_is_a_link_its_mounts_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    table = tmp_path / "mountinfo"
    paths = [f"{tmp_path}/disk/7", f"{tmp_path}/disk/7/m"]
    table.write_text("".join(f"1 2 0:3 / {path} rw - tmpfs none rw\n" for path in paths))
    monkeypatch.setattr(scratch, "MOUNTINFO", str(table))
    assert scratch.mounts_below(f"{tmp_path}/scratch/7") == paths[1:]
    assert scratch.mounts_below(f"{tmp_path}/scratch/7", itself=True) == paths[::-1]


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]

can_mount = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(
        [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="this machine lets nobody mount anything in a namespace of their own",
)

SWAP = """
set -eu
mkdir -p job/a/home host/home
mount -t tmpfs none host/home
mount -t tmpfs none job/a/home
# The table was read before: job/a/home.
mv job/a job/b
ln -s ../host job/a
{program} unmount $PWD/job/a/home || :
grep -o "[^ ]*/home " /proc/self/mountinfo
{program} unmount $PWD/job/b/home
echo then
grep -o "[^ ]*/home " /proc/self/mountinfo
"""


@can_mount
def test_what_the_host_has_mounted_is_not_unmounted_by_a_link_in_a_job_s_folder(
    tmp_path: Path,
) -> None:
    """Another job of the same person puts it there, between the look at the table and its use."""
    script = SWAP.format(program=f"{sys.executable} -IS {PROGRAM}")
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    before, _, after = done.stdout.partition("then\n")
    host, job = f"{tmp_path}/host/home", f"{tmp_path}/job/b/home"
    assert {host, job} <= {*before.split()}
    assert {host, job} & {*after.split()} == {host}


ENDS = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("scratch", {program!r})
scratch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scratch)
scratch.__file__ = {program!r}
folder = os.fsencode("scratch/7/.." + {strange!r})
os.mkdir("scratch")
os.system("mount -t tmpfs none scratch")
os.makedirs(folder)
os.spawnlp(os.P_WAIT, "mount", "mount", "-t", "tmpfs", "none", folder)
print(len(scratch.mounts_below(os.path.abspath("scratch"))))
scratch.Scratch(os.path.abspath("scratch")).clear("7")
print(os.path.ismount("scratch"), os.listdir("scratch"))
"""


@can_mount
@pytest.mark.parametrize("strange", STRANGE)
def test_what_the_host_has_mounted_is_not_unmounted_by_the_name_of_a_job_s_mount(
    tmp_path: Path, strange: str
) -> None:
    """A part of the name leads out of the job's folder."""
    script = ENDS.format(program=str(PROGRAM), strange=strange)
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["1", "True []"], done.stderr


@pytest.mark.parametrize("path", ["a/..", "a/../b", "a/.", "./b"])
def test_a_way_that_leads_back_leads_nowhere(
    tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert scratch.unmount(f"{tmp_path}/{path}") == 1
    assert capsys.readouterr().err == f"{tmp_path}/{path} is not unmounted: Invalid argument\n"
    with pytest.raises(OSError, match="Invalid argument"):
        scratch.reached(f"{tmp_path}/{path}")


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
def test_a_way_with_a_link_leads_nowhere(tmp_path: Path, link: str) -> None:
    (tmp_path / "other/b/c").mkdir(parents=True)
    place = tmp_path / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "other")
    assert scratch.unmount(f"{tmp_path}/a/b/c") == 1


def test_what_is_no_mount_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scratch.main(["unmount", str(tmp_path)], {}) == 1
    assert f"{tmp_path} is not unmounted: " in capsys.readouterr().err


@as_root
def test_a_removal_unmounts_by_a_process_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root)
    commands: list[list[str]] = []
    monkeypatch.setattr(scratch, "mounts_below", lambda path: [f"{path}/m"])
    monkeypatch.setattr(scratch.Scratch, "_run", lambda _, words, __: commands.append(words))
    scratch.Scratch(str(root)).clear("7")
    own = f"{root}/.7.{os.getpid()}/m"
    assert commands[0][-3:] == [str(PROGRAM), "unmount", own]
    assert commands[1][0] == "/usr/bin/rm"


def test_tmpfs_comes_from_the_first_configuration_that_is_there(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.write_text("ClusterName=x\n# TmpFS=/no\nTmpFS=/scratch\n")
    assert scratch.tmp_fs([first, second]) == "/scratch"
    first.write_text("ClusterName=x\n")
    assert scratch.tmp_fs([first, second]) is None
    with pytest.raises(scratch.ScratchError, match="is slurmd configured"):
        scratch.tmp_fs([str(tmp_path / "none")])


@pytest.mark.parametrize(
    "job", ["", "..", "7/../..", "7\n", "\N{ARABIC-INDIC DIGIT SEVEN}", "-1", "7_1"]
)
def test_a_number_that_is_none_is_refused(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "tmp_fs", lambda: pytest.fail("it went on"))
    for step in ("prolog", "epilog"):
        assert scratch.main([step], {"SLURM_JOB_ID": job, "SLURM_JOB_UID": "1"}) == 2


@pytest.mark.parametrize(("step", "status"), [("prolog", 1), ("epilog", 0)])
def test_a_failure_fails_the_prolog_and_never_the_epilog(
    step: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise scratch.ScratchError("the disk is gone")

    monkeypatch.setattr(scratch, "tmp_fs", fail)
    assert scratch.main([step], {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1"}) == status
    assert capsys.readouterr().err == "the disk is gone\n"


def test_what_nobody_expected_fails_no_epilog(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(scratch, "tmp_fs", fail)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1"}
    assert scratch.main(["epilog"], job) == 0
    *trace, said = capsys.readouterr().err.splitlines()
    assert said == "what job 7 left may stay: IndexError('list index out of range')"
    assert trace[0].startswith("Traceback")
    # A prolog that fails has its job start elsewhere.
    with pytest.raises(IndexError):
        scratch.main(["prolog"], job)


def test_a_name_that_is_no_text_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    scratch.say("/scratch/7/\udcff\r\nx is not unmounted")
    assert capsys.readouterr().err == "/scratch/7/\\udcff\\r\\nx is not unmounted\n"


def test_it_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    # The role starts it so in each run.
    assert scratch.main(["--help"], {}) == 0
    assert "prolog|epilog" in capsys.readouterr().out


def test_a_disk_that_takes_folders_keeps_nothing_of_the_check(root: Path) -> None:
    scratch.Scratch(str(root)).check()
    assert left(root) == []
    root.chmod(0o777)
    with pytest.raises(scratch.ScratchError, match="not root's alone"):
        scratch.Scratch(str(root)).check()


@pytest.mark.parametrize(
    ("error", "free", "blame"),
    [
        (errno.ENOSPC, 0, r"; job 8 of \S+ has most files"),
        (errno.ENOSPC, 9, r"; job 77 of \S+ has most of what is in there"),
        (errno.EROFS, 9, ""),
    ],
)
def test_who_fills_the_disk_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: int, free: int, blame: str
) -> None:
    for job, files, size in (("7", 1, 10), ("8", 5, 10), ("77", 1, 100_000)):
        (root / job).mkdir(parents=True)
        for number in range(files):
            (root / job / str(number)).write_bytes(b"x" * size)

    def mkdir(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    root.chmod(0o755)
    (root / scratch.OWN).touch()
    monkeypatch.setattr(scratch.os, "mkdir", mkdir)
    room = SimpleNamespace(f_blocks=0, f_favail=free)
    monkeypatch.setattr(scratch.os, "statvfs", lambda _: room)
    pattern = f"^no folder can be made in {root}: {os.strerror(error)}{blame}$"
    with pytest.raises(scratch.ScratchError, match=pattern):
        scratch.Scratch(str(root)).check()


@pytest.mark.parametrize(
    ("sizes", "blame"),
    [
        ({"7": 10, "8": 900, "77": math.inf}, ["job 8 of root has most of what is in there"]),
        ({"8": math.inf}, ["job 8 of root has most of what is in there"]),
        # Its job has ended while it was counted.
        ({"8": 1, "gone": 900}, ["job 8 of root has most of what is in there"]),
        ({"gone": 900}, []),
        ({}, []),
    ],
)
def test_of_bytes_nobody_is_blamed_who_was_not_counted(
    root: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, float], blame: list[str]
) -> None:
    """Many small files take long to count, and may be little."""
    root.mkdir()
    for job in {*sizes} - {"gone"}:
        (root / job).mkdir()
    found = {f"{root}/{job}": size for job, size in sizes.items()}
    monkeypatch.setattr(scratch, "measure", lambda *_: found)
    monkeypatch.setattr(scratch, "login", lambda _: "root")
    assert scratch.Scratch(str(root))._most(OSError(errno.ENOSPC, "")) == blame


def test_who_is_still_counted_has_most() -> None:
    sizes = scratch.measure({"a": ["echo", "7"], "b": ["sleep", "60"], "c": ["true"]}, 0.5)
    assert sizes == {"a": 7, "b": math.inf}
