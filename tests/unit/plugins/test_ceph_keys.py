"""Which rights users of a Ceph cluster get, and what is asked for them; no cluster."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_keys.py"
SPEC = importlib.util.spec_from_file_location("ceph_keys", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_keys = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_keys)

KEY = "AQBTz2JnAAAAABAAk4vDFzMzdBmK0Pwr0f6zgQ=="

# What `ceph fs authorize` of 16.2 and 18.2 gives.
CASES = {
    "writes": (
        [{"path": "/home", "access": "rw"}],
        {
            "mds": "allow rw fsname=cephfs path=/home",
            "mon": "allow r fsname=cephfs",
            "osd": "allow rw tag cephfs data=cephfs",
        },
    ),
    "reads": (
        [{"path": "/apps", "access": "r"}],
        {
            "mds": "allow r fsname=cephfs path=/apps",
            "mon": "allow r fsname=cephfs",
            "osd": "allow r tag cephfs data=cephfs",
        },
    ),
    "both": (
        [{"path": "/home", "access": "rw"}, {"path": "/apps", "access": "r"}],
        {
            "mds": "allow rw fsname=cephfs path=/home, allow r fsname=cephfs path=/apps",
            "mon": "allow r fsname=cephfs",
            "osd": "allow rw tag cephfs data=cephfs",
        },
    ),
    "everything": (
        [{"path": "/", "access": "rw"}],
        {
            "mds": "allow rw fsname=cephfs",
            "mon": "allow r fsname=cephfs",
            "osd": "allow rw tag cephfs data=cephfs",
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_client_gets_the_least_rights(case: str) -> None:
    folders, expected = CASES[case]
    assert ceph_keys.folder_caps("cephfs", folders) == expected


@pytest.mark.parametrize(
    ("name", "full"),
    [("muster-compute", "client.muster-compute"), ("mgr.s1", "mgr.s1"), ("a.b", "client.a.b")],
)
def test_a_name_without_a_kind_is_a_client_s(name: str, full: str) -> None:
    assert ceph_keys.entity(name) == full


def given(*users, **options):
    return {"filesystem": "cephfs", "users": list(users), **options}


def cluster(stand_ins, tmp_path, users):
    """A `ceph` that answers with these users and notes its arguments."""
    (tmp_path / "users").write_text(json.dumps({"auth_dump": users}))
    told = tmp_path / "told"
    return told, stand_ins(
        {"ceph": f'case "$*" in *"auth ls"*) cat {tmp_path}/users;; *) echo "$@" >>{told};; esac'}
    )


COMPUTE = {"name": "compute", "folders": [{"path": "/home", "access": "rw"}]}
RIGHT = {"entity": "client.compute", "key": KEY, "caps": CASES["writes"][1]}


def test_nothing_is_said_where_all_is_right(run_module, stand_ins, tmp_path) -> None:
    told, path = cluster(stand_ins, tmp_path, [RIGHT])
    done = run_module("ceph_keys", given(COMPUTE), env={"PATH": path})
    assert done["changed"] is False
    assert not told.exists()


def test_rights_beside_the_wanted_are_taken_back(run_module, stand_ins, tmp_path) -> None:
    wide = {**RIGHT, "caps": {"mds": "allow rw", "mon": "allow r", "osd": "allow *", "mgr": "x"}}
    told, path = cluster(stand_ins, tmp_path, [wide])
    done = run_module("ceph_keys", given(COMPUTE), env={"PATH": path})
    assert done["changed"] is True
    words = told.read_text()
    assert "--name client.admin auth caps client.compute mds allow rw fsname=cephfs" in words
    assert "mgr" not in words
    assert "client.compute osd 'allow *'" in done["diff"]["before"]
    assert KEY not in done.printed + words


def test_a_check_only_says_it(run_module, stand_ins, tmp_path) -> None:
    told, path = cluster(stand_ins, tmp_path, [])
    done = run_module("ceph_keys", given(COMPUTE), env={"PATH": path}, check=True)
    assert done["changed"] is True
    assert "client.compute mon 'allow r fsname=cephfs'\n" in done["diff"]["after"]
    assert not told.exists()


def test_a_check_of_a_host_without_a_cluster_says_all(run_module, stand_ins) -> None:
    path = stand_ins({"ceph": "echo '[errno 2] error calling conf_read_file' >&2; exit 1"})
    done = run_module("ceph_keys", given(COMPUTE, read=True), env={"PATH": path}, check=True)
    assert (done["changed"], done["keyrings"]) == (True, {"client.compute": ""})


def test_keys_are_given_only_when_asked_for(run_module, stand_ins, tmp_path) -> None:
    _, path = cluster(stand_ins, tmp_path, [RIGHT])
    done = run_module("ceph_keys", given(COMPUTE, read=True), env={"PATH": path})
    assert done["keyrings"] == {"client.compute": f"[client.compute]\n\tkey = {KEY}\n"}


def test_monitors_that_do_not_answer_are_named_with_what_to_do(run_module, stand_ins) -> None:
    said = "[errno 110] RADOS timed out (error connecting to the cluster)"
    path = stand_ins({"ceph": f"echo '{said}' >&2; exit 1"})
    done = run_module("ceph_keys", given(COMPUTE), env={"PATH": path})
    assert done["msg"].startswith("no quorum of monitors answered `ceph auth` within 60 s: ")
    assert "systemctl status 'ceph*mon*'" in done["msg"]


def test_what_ceph_refuses_is_passed_on(run_module, stand_ins) -> None:
    path = stand_ins({"ceph": "echo '[errno 13] RADOS permission denied' >&2; exit 1"})
    done = run_module("ceph_keys", given(COMPUTE), env={"PATH": path})
    assert (
        done["msg"]
        == "`ceph auth ls --format json` as client.admin: [errno 13] RADOS permission denied"
    )
