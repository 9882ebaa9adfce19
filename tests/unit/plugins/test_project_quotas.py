"""What the module `project_quotas` does where there are no quotas; all else is in tests/vm."""

import errno
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import new_home
from ansible_collections.muster.slurm.plugins.module_utils import project_quota as module
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import mounted

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/project_quotas.py"
SPEC = importlib.util.spec_from_file_location("project_quotas", PATH)
assert SPEC is not None and SPEC.loader is not None
quotas = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(quotas)

TABLE = """\
30 1 8:1 / / rw - ext4 /dev/vda1 rw,errors=remount-ro
31 30 7:0 / /home rw,nosuid,nodev - ext4 /dev/loop0 rw,prjquota
32 30 7:1 / /data rw - xfs /dev/loop1 rw,pqnoenforce
"""


def on_root(*folders):
    """A file system without project quotas: that of the tests."""
    return {"file_systems": [{"path": "/", "folders": list(folders)}]}


FOLDER = {"path": "/srv/ada", "project": 20001, "gib": 50, "files": 1000}


@pytest.mark.parametrize(
    ("path", "enforced"), [("/home", True), ("/data", False), ("/", False), ("/srv", False)]
)
def test_a_file_system_enforces_quotas_if_it_is_mounted_so(path, enforced) -> None:
    strange = "33 30 0:50 / /tmp/.\r\x85\xa0\udcff\x1f rw - fuse.x\r  rw,user_id=20077\n"
    for table in (TABLE, strange + TABLE):
        assert ("prjquota" in mounted(table).get(path, ("", "", set()))[2]) is enforced


def test_quotas_without_the_option_are_refused_with_the_remedy(run_module) -> None:
    done = run_module("project_quotas", on_root(FOLDER))
    assert done["failed"]
    assert "/ is not mounted with project quotas" in done["msg"]
    assert "reboot this host" in done["msg"]
    assert "tune2fs -O quota,project -Q prjquota" in done["msg"]


def test_a_run_in_check_mode_on_a_fresh_host_shows_what_will_be(run_module) -> None:
    done = run_module("project_quotas", on_root(FOLDER), check=True)
    assert done["changed"]
    assert done["diff"]["after"] == (
        "/srv/ada: any size, any number of files -> 50 GiB, 1000 files\n"
    )


def test_where_there_are_no_quotas_nothing_is_touched(run_module) -> None:
    assert not run_module("project_quotas", on_root())["changed"]


def test_the_kernel_s_structures_have_their_sizes() -> None:
    """<linux/fs.h> and <linux/quota.h>."""
    assert module.FSXATTR.size == 28
    assert module.DQBLK.size == 72


@pytest.fixture
def given(monkeypatch) -> list[str]:
    """What is given to a project, and `mark` for the mark of the folder."""
    paths = []

    def give(fd, project, *, inherit):
        paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    monkeypatch.setattr(module, "give", give)
    monkeypatch.setattr(module.os, "setxattr", lambda *_: paths.append("mark"))
    monkeypatch.setattr(module, "RETURN_S", 0)
    return paths


def give_all(home: Path) -> None:
    top = os.open(home, os.O_RDONLY)
    try:
        module.give_all(top, 20001)
    finally:
        os.close(top)


def test_folders_in_folders_without_end_keep_nobody_from_a_quota(tmp_path, given) -> None:
    """More of them than a process may open files, and than Python calls functions in functions."""
    depth = 1500
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(depth):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("file", os.O_CREAT, dir_fd=here))
        (tmp_path / "z").touch()
        give_all(tmp_path)
    finally:
        os.close(here)
        # shutil.rmtree, by which pytest removes it, is not able to.
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)
    assert len(given) == 2 * (1 + depth + 2) + 1
    assert given[-1] == "mark"


def test_a_file_that_somebody_has_leased_keeps_nobody_from_a_quota(
    tmp_path, given, monkeypatch
) -> None:
    (tmp_path / "leased").touch()
    (tmp_path / "other").touch()
    opened, refusals = os.open, [2]

    def leased(path, flags, *words, **options):
        if path == "leased" and refusals[0]:
            refusals[0] -= 1
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return opened(path, flags, *words, **options)

    monkeypatch.setattr(module.os, "open", leased)
    give_all(tmp_path)
    assert given[-1] == "mark"
    assert str(tmp_path / "leased") in given
    # Who does not give it back: all else is given, and the next run tries again.
    refusals[0] = 99
    given.clear()
    give_all(tmp_path)
    assert str(tmp_path / "other") in given
    assert not {"mark", str(tmp_path / "leased")} & {*given}


def refuse_to_open(monkeypatch, shut) -> None:
    """As where a program of somebody (FUSE) is mounted, and lets nobody look there."""
    opened = os.open

    def refuse(path, flags, *words, **options):
        if path == shut:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, flags, *words, **options)

    monkeypatch.setattr(module.os, "open", refuse)


def test_what_somebody_has_mounted_in_a_home_keeps_nobody_from_a_quota(
    tmp_path, given, monkeypatch
) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "sub").mkdir()
    refuse_to_open(monkeypatch, "mnt")
    give_all(tmp_path)
    assert str(tmp_path / "sub") in given
    assert given[-1] == "mark"


@pytest.fixture
def set_quotas(tmp_path, monkeypatch):
    """Return `bring` for homes of ada and bob in a file system of whose quotas nothing is set.

    It returns the folders that were limited, and those that root can't look at.
    """
    table = tmp_path / "mountinfo"
    table.write_text("31 30 7:0 / / rw - ext4 /dev/loop0 rw,prjquota\n")
    monkeypatch.setattr(new_home, "MOUNTINFO", str(table))
    monkeypatch.setattr(quotas, "read_table", table.read_text)
    monkeypatch.setattr(module, "belongs", lambda *_: True)
    monkeypatch.setattr(quotas.FileSystem, "limits", lambda *_: module.Limits())
    monkeypatch.setattr(quotas.FileSystem, "limited", lambda _: iter([20001, 20002]))
    folders = []
    for number, name in enumerate(["ada", "bob"], start=20001):
        (tmp_path / name).mkdir()
        folders.append({**FOLDER, "path": str(tmp_path / name), "project": number})
    limited, unseen = [], []
    monkeypatch.setattr(quotas.FileSystem, "limit", lambda _, project, __: limited.append(project))

    def bring():
        wanted = {"path": "/", "folders": folders, "others": []}
        assert len(list(quotas.bring(wanted, unseen, act=True))) == len(limited)
        return limited, unseen

    return bring


def test_a_home_that_root_can_t_look_at_keeps_no_other_from_a_quota(
    set_quotas, tmp_path, monkeypatch
) -> None:
    refuse_to_open(monkeypatch, str(tmp_path / "ada"))
    assert set_quotas() == ([20002], [str(tmp_path / "ada")])


def test_a_home_is_not_opened_where_a_program_of_somebody_is_mounted(set_quotas, tmp_path) -> None:
    """With allow_other it may keep who opens it waiting for ever."""
    with (tmp_path / "mountinfo").open("a") as table:
        table.write(f"97 31 0:53 / {tmp_path}/ada rw - fuse.x me rw,user_id=20001\n")
    assert set_quotas() == ([20002], [str(tmp_path / "ada")])


def test_quotas_that_the_kernel_refuses_to_root_are_no_matter_of_a_folder(
    set_quotas, monkeypatch
) -> None:
    def refuse(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(quotas.FileSystem, "limits", refuse)
    with pytest.raises(PermissionError):
        set_quotas()


def test_a_folder_that_is_moved_meanwhile_leads_nowhere(tmp_path, given, monkeypatch) -> None:
    home, other = tmp_path / "ada", tmp_path / "other"
    for name in ("a", "b"):
        (home / name / "c").mkdir(parents=True)
    (other / "precious").mkdir(parents=True)
    give = module.give

    def moving(fd, project, *, inherit):
        give(fd, project, inherit=inherit)
        for name in ("a", "b"):
            if given[-1] == str(home / name / "c"):
                (home / name).rename(other / f"{name}{len(given)}")
                (home / name / "c").mkdir(parents=True)

    monkeypatch.setattr(module, "give", moving)
    give_all(home)
    assert str(other) not in given
    assert str(other / "precious") not in given
    assert "mark" not in given


def test_only_what_is_in_a_folder_is_given_to_its_project(tmp_path, monkeypatch) -> None:
    """Its owner can make links there; root must not follow them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    home = tmp_path / "ada"
    (home / "sub").mkdir(parents=True)
    (home / "sub/file").touch()
    (home / "to-folder").symlink_to(outside)
    (home / "sub/to-file").symlink_to(outside / "precious")
    os.mkfifo(home / "pipe")
    given = []

    def give(fd, project, *, inherit):
        assert project == 20001
        given.append((str(Path(f"/proc/self/fd/{fd}").readlink()), inherit))

    monkeypatch.setattr(module, "give", give)
    marked = []
    monkeypatch.setattr(module.os, "setxattr", lambda *words: marked.append(words[1:]))
    top = os.open(home, os.O_RDONLY)
    try:
        module.give_all(top, 20001)
    finally:
        os.close(top)
    assert set(given) == {
        (str(home), True),
        (str(home / "sub"), True),
        (str(home / "sub/file"), False),
    }
    assert marked == [("trusted.muster.project", b"20001")]
