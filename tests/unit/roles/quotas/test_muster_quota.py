"""What muster-quota shows, with the file system's answers made up."""

import errno
import importlib.machinery
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/quotas/files/usr/local/bin/muster-quota"
LOADER = importlib.machinery.SourceFileLoader("muster_quota", str(PROGRAM))
SPEC = importlib.util.spec_from_loader("muster_quota", LOADER)
assert SPEC is not None
quota = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(quota)

GIB = 2**30
MOUNTS = """\
30 1 0:20 / / rw - ext4 /dev/vda rw
31 30 0:40 / /home rw,nosuid - nfs4 storage1:/home rw
32 30 0:41 / /data rw - ceph 192.0.2.1:/ rw
"""


def answer(*, gib: int, free_gib: int, files: int, free_files: int) -> SimpleNamespace:
    """An answer of statvfs(3), in blocks of 4 KiB."""
    return SimpleNamespace(
        f_frsize=4096,
        f_blocks=gib * GIB // 4096,
        f_bfree=free_gib * GIB // 4096,
        f_files=files,
        f_ffree=free_files,
    )


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimpleNamespace]:
    """What statvfs says of each path."""
    known = {"/home": answer(gib=900, free_gib=800, files=10_000_000, free_files=9_000_000)}

    def statvfs(path: str) -> SimpleNamespace:
        if path not in known:
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return known[path]

    monkeypatch.setattr(quota.os, "statvfs", statvfs)
    return known


def test_a_folder_with_a_quota_shows_it_as_its_size(answers: dict[str, SimpleNamespace]) -> None:
    answers["/home/ada"] = answer(gib=50, free_gib=20, files=1000, free_files=50)
    found = quota.usage("/home/ada", quota.mounts(MOUNTS))
    assert found == ("/home/ada", (30 * GIB, 50 * GIB), (950, 1000))
    assert found.is_limited
    assert found.is_near
    assert quota.table([found]).splitlines() == [
        "folder         used     limit       files  limit",
        "/home/ada  30.0 GiB  50.0 GiB  60%    950  1,000  95%",
    ]
    assert quota.sentence(found) == (
        "/home/ada is nearly full: 950 of 1,000 files (95%); remove what you don't need\n"
    )


def test_a_quota_of_one_kind_leaves_the_other_as_it_is(
    answers: dict[str, SimpleNamespace],
) -> None:
    answers["/home/ada"] = answer(gib=50, free_gib=6, files=10_000_000, free_files=9_000_000)
    found = quota.usage("/home/ada", quota.mounts(MOUNTS))
    assert found.files.limit == 0
    assert not found.is_near
    assert quota.table([found]).splitlines()[1].split()[-3:] == ["-", "-", "-"]


def test_without_a_quota_the_whole_file_system_is_seen(
    answers: dict[str, SimpleNamespace],
) -> None:
    answers["/home/ada"] = answers["/home"]
    assert not quota.usage("/home/ada", quota.mounts(MOUNTS)).is_limited


def test_cephfs_has_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"ceph.dir.rbytes": b"1024", "ceph.dir.rentries": b"7", "ceph.quota.max_files": b"9"}

    def attribute(path: str, name: str) -> bytes:
        if name not in known:
            raise OSError(quota.errno.ENODATA, "No data available")
        return known[name]

    monkeypatch.setattr(quota.os, "getxattr", attribute)
    found = quota.usage("/data/photos", quota.mounts(MOUNTS))
    assert found == ("/data/photos", (1024, 0), (7, 9))


def test_projects_are_the_folders_that_my_groups_share(tmp_path: Path) -> None:
    for name, mode in (("mine", 0o2770), ("plain", 0o750), ("link", 0)):
        if mode:
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(mode)
        else:
            (tmp_path / name).symlink_to("mine")
    types = {"/": "ext4", str(tmp_path): "nfs4", "/home": "nfs4", "/proc/x": "autofs"}
    assert list(quota.shared_by_groups(types, "/home", [])) == [f"{tmp_path}/mine"]
    assert list(quota.shared_by_groups(types, str(tmp_path), [])) == []
    # As in a container.
    (tmp_path / "file").touch()
    assert list(quota.shared_by_groups({str(tmp_path / "file"): "ext4"}, "/home", [])) == []
    if os.geteuid() == 0:
        os.chown(tmp_path / "mine", -1, 20999)
        (tmp_path / "mine").chmod(0o2770)
        assert list(quota.shared_by_groups({str(tmp_path): "nfs4"}, "/home", [])) == []


def test_a_mount_may_have_a_space_in_its_path() -> None:
    line = "33 30 0:42 / /srv/my\\040data rw - nfs4 storage1:/x rw\n"
    assert quota.mounts(MOUNTS + line)["/srv/my data"] == "nfs4"


@dataclass
class Entry:
    """An entry of a folder; `state` may be an error."""

    name: str
    path: str
    state: SimpleNamespace | OSError

    def stat(self, *, follow_symlinks: bool) -> SimpleNamespace:
        assert not follow_symlinks
        if isinstance(self.state, OSError):
            raise self.state
        return self.state


@pytest.fixture
def site(answers: dict[str, SimpleNamespace], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ada's home and two shared folders; of one the server was recreated."""
    group = SimpleNamespace(st_mode=0o42770, st_gid=os.getegid())
    states: dict[str, SimpleNamespace | OSError] = {
        "broken": OSError(errno.EIO, "Input/output error", "/srv/data/broken"),
        "gone": FileNotFoundError(errno.ENOENT, "No such file or directory", "/srv/data/gone"),
        "speech": group,
        "vision": group,
    }

    def entries(path: str) -> list[Entry]:
        if path != "/srv/data":
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return [Entry(name, f"{path}/{name}", state) for name, state in states.items()]

    monkeypatch.setattr(quota.os, "scandir", entries)
    types = {"/": "ext4", "/home": "nfs4", "/srv/data": "nfs4", "/srv/more": "nfs4"}
    monkeypatch.setattr(quota, "mounts", lambda _: types)
    monkeypatch.setattr(quota.pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir="/home/ada"))
    answers["/home/ada"] = answer(gib=50, free_gib=1, files=1000, free_files=900)
    answers["/srv/data"] = answers["/home"]
    answers["/srv/data/speech"] = answer(gib=20, free_gib=10, files=1000, free_files=900)


def test_a_mount_with_a_strange_name_hides_no_other() -> None:
    row = "33 30 0:50 / /tmp/.\r\x85\xa0\u2028\udcff\x1f rw - fuse.x\r  rw,user_id=20077\n"
    types = quota.mounts(row + MOUNTS)
    assert types == {**quota.mounts(MOUNTS), "/tmp/.\r\x85\xa0\u2028\udcff\x1f": "fuse.x\r"}


def test_a_name_that_is_no_text_is_shown(
    site: None,
    answers: dict[str, SimpleNamespace],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers["/srv/data/\udcff"] = answers["/home/ada"]
    monkeypatch.setattr(quota, "shared_by_groups", lambda *_: ["/srv/data/\udcff"])
    assert quota.main([]) == quota.main(["--near"]) == 0
    assert capsys.readouterr().out.count("/srv/data/\\udcff") == 2


def test_what_can_t_be_looked_at_hides_nothing_else(
    site: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quota.main([]) == 1
    said = capsys.readouterr()
    folders = [line.split()[0] for line in said.out.splitlines()]
    assert folders == ["folder", "/home/ada", "/srv/data/speech"]
    assert said.err == (
        "muster-quota: not known: /srv/data/broken (Input/output error), "
        "/srv/more (Stale file handle), /srv/data/vision (Stale file handle)\n"
    )


def test_a_login_still_warns(site: None, capsys: pytest.CaptureFixture[str]) -> None:
    quota.main(["--near"])
    assert capsys.readouterr().out == (
        "/home/ada is nearly full: 49.0 GiB of 50.0 GiB (98%); remove what you don't need\n"
    )


def test_a_home_that_can_t_be_looked_at_is_not_one_without_a_quota(
    site: None,
    answers: dict[str, SimpleNamespace],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del answers["/home/ada"]
    monkeypatch.setattr(quota, "shared_by_groups", lambda *_: [])
    assert quota.main([]) == 1
    assert capsys.readouterr() == ("", "muster-quota: not known: /home/ada (Stale file handle)\n")


def test_who_has_no_home_has_no_quota(
    site: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def statvfs(path: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(quota.os, "statvfs", statvfs)
    monkeypatch.setattr(quota, "shared_by_groups", lambda *_: [])
    assert quota.main([]) == 0
    assert capsys.readouterr() == ("You have no quota here.\n", "")
