"""Which folders of a CephFS are made, and with what quota; the file system is a dictionary."""

import importlib.util
import types
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_folder.py"
SPEC = importlib.util.spec_from_file_location("ceph_folder", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_folder = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_folder)


class MissingError(Exception):
    """There is no such folder."""


class NoAttributeError(Exception):
    """The folder has no such attribute."""


class Files:
    """What of libcephfs the module calls."""

    def __init__(self, **folders):
        self.folders = {"/": {}} | {f"/{name}": quota for name, quota in folders.items()}
        self.modes = {}

    def stat(self, path):
        if path not in self.folders:
            raise MissingError(path)

    def mkdirs(self, path, mode):
        self.mkdir(path, mode)

    def mkdir(self, path, mode):
        self.folders[path] = {}
        # As with a umask of 0077.
        self.modes[path] = mode & 0o700

    def chmod(self, path, mode):
        self.modes[path] = mode

    def getxattr(self, path, name):
        if name not in self.folders[path]:
            raise NoAttributeError(name)
        return self.folders[path][name]

    def setxattr(self, path, name, value, _flags):
        self.folders[path][name] = value


@pytest.fixture(autouse=True)
def library(monkeypatch):
    names = types.SimpleNamespace(ObjectNotFound=MissingError, NoData=NoAttributeError)
    monkeypatch.setattr(ceph_folder, "cephfs", names)


def provide(files, *folder, act=True):
    tree = ceph_folder.Tree(files, act=act)
    tree.provide(*folder)
    return tree.before, tree.after


GIB = 2**30
QUOTA = "ceph.quota.max_bytes"


def test_a_folder_is_made_with_its_mode_and_quota() -> None:
    files = Files()
    provide(files, "/data/projects", "2775", 2)
    assert files.folders["/data/projects"] == {QUOTA: str(2 * GIB).encode()}
    assert files.modes == {"/data": 0o700, "/data/projects": 0o2775}


def test_one_that_is_there_keeps_its_mode() -> None:
    files = Files(home={})
    assert provide(files, "/home", "0755", None) == ("", "")
    assert files.modes == {}


@pytest.mark.parametrize(
    ("there", "wanted", "set_to"),
    [
        ({}, 3, b"3221225472"),
        ({QUOTA: b"3221225472"}, 3, None),
        ({QUOTA: b"3221225472"}, 4, b"4294967296"),
        ({QUOTA: b"3221225472"}, None, b"0"),
        ({QUOTA: b"0"}, None, None),
        ({}, None, None),
    ],
)
def test_the_quota_is_brought_to_what_is_wanted(there, wanted, set_to) -> None:
    files = Files(data=dict(there))
    before, after = provide(files, "/data", "0755", wanted)
    assert bool(after) == (set_to is not None)
    assert files.folders["/data"] == there | ({QUOTA: set_to} if set_to else {})
    if set_to:
        assert after == f"/data: quota {set_to.decode()}\n"
        assert before == f"/data: quota {int(there.get(QUOTA, b'0'))}\n"


def test_the_number_of_files_has_a_quota_too() -> None:
    files = Files(data={QUOTA: b"3221225472"})
    assert provide(files, "/data", "0755", 3, 9000) == (
        "/data: quota 0 files\n",
        "/data: quota 9000 files\n",
    )
    assert files.folders["/data"]["ceph.quota.max_files"] == b"9000"
    assert provide(files, "/data", "0755", 3, 9000) == ("", "")
    provide(files, "/data", "0755", 3, None)
    assert files.folders["/data"]["ceph.quota.max_files"] == b"0"


def test_a_check_only_says_it() -> None:
    files = Files()
    assert provide(files, "/data", "0755", 1, act=False) == (
        "/data: absent\n/data: quota 0\n",
        f"/data: folder, mode 0755\n/data: quota {GIB}\n",
    )
    assert set(files.folders) == {"/"}


def test_a_host_without_the_library_is_told_what_to_install(run_module) -> None:
    given = {"filesystem": "cephfs", "folders": [{"path": "/home"}]}
    assert "python3-cephfs; install it" in run_module("ceph_folder", given)["msg"]
    assert run_module("ceph_folder", given, check=True)["changed"] is True
