"""The commands that a Ceph cluster gets until its file system is as wanted; no cluster."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_filesystem.py"
SPEC = importlib.util.spec_from_file_location("ceph_filesystem", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_filesystem = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_filesystem)

META, DATA = "cephfs.cephfs.meta", "cephfs.cephfs.data"


def pool(name, **other):
    settings = {"size": 3, "min_size": 2, "crush_rule": 1, "pg_autoscale_mode": "on"}
    return {"pool_name": name, "flags_names": "hashpspool", **settings, **other}


class Ceph:
    """A cluster that was made by the module, but for what a test changes."""

    def __init__(self, release="16.2.15"):
        self.release = release
        self.told = []
        flags = "hashpspool,bulk" if release >= "17" else "hashpspool"
        self.pools = {
            META: pool(META),
            DATA: pool(DATA, flags_names=flags),
            ".mgr": pool(".mgr"),
            "theirs": pool("theirs", size=2, min_size=1, crush_rule=0),
        }
        self.config = [
            {"section": "global", "name": "osd_pool_default_crush_rule", "value": "1"},
            {"section": "global", "name": "osd_pool_default_size", "value": "3"},
            *(
                {"section": "mon", "name": name, "value": value}
                for name, value in (
                    ("auth_allow_insecure_global_id_reclaim", "false"),
                    ("mon_allow_pool_size_one", "false"),
                    ("mon_warn_on_pool_no_redundancy", "true"),
                )
            ),
        ]
        self.rules = [
            {"rule_name": "replicated_rule", "rule_id": 0},
            {"rule_name": "muster_host", "rule_id": 1},
        ]
        self.filesystems = [{"mdsmap": {"fs_name": "cephfs", "standby_count_wanted": 1}}]

    def run(self, *words):
        self.told.append(" ".join(words))
        return ""

    def ask(self, *words):
        return {
            "versions": {"mon": {f"ceph version {self.release} (abc) name (stable)": 3}},
            "config dump": self.config,
            "osd crush rule dump": self.rules,
            "osd pool ls detail": list(self.pools.values()),
            "fs dump": {"filesystems": self.filesystems},
        }[" ".join(words)]


def told(ceph, act=True, **other):
    params = {
        "name": "cephfs",
        "copies": 3,
        "failure_domain": "host",
        "standbys": 1,
        **other,
    }
    cluster = ceph_filesystem.Cluster(ceph, params, act=act)
    cluster.provide()
    assert ceph.told == ([line.removeprefix("ceph ") for line in cluster.lines] if act else [])
    return [line.removeprefix("ceph ") for line in cluster.lines]


@pytest.mark.parametrize("release", ["16.2.15", "18.2.7"])
def test_nothing_is_told_to_a_cluster_that_is_right(release) -> None:
    assert told(Ceph(release)) == []
    assert told(Ceph(release), act=False) == []


def test_only_a_setting_that_differs_is_set() -> None:
    ceph = Ceph()
    ceph.config = [entry for entry in ceph.config if "reclaim" not in entry["name"]]
    assert told(ceph) == ["config set mon auth_allow_insecure_global_id_reclaim false"]


def test_a_new_cluster_gets_pools_before_the_file_system() -> None:
    ceph = Ceph()
    ceph.pools, ceph.filesystems = {}, []
    assert told(ceph) == [
        f"osd pool create {META} 16 16 replicated muster_host",
        f"osd pool create {DATA} replicated muster_host",
        f"fs new cephfs {META} {DATA}",
        "fs set cephfs standby_count_wanted 1",
    ]


def test_more_copies_reach_the_pools_of_the_cluster_and_of_nobody_else() -> None:
    ceph = Ceph()
    for name in (META, DATA, ".mgr"):
        ceph.pools[name] |= {"size": 2, "min_size": 1}
    assert sorted(told(ceph)) == sorted(
        f"osd pool set {name} {key} {value}"
        for name in (META, DATA, ".mgr")
        for key, value in (("size", 3), ("min_size", 2))
    )


def test_another_failure_domain_moves_the_copies() -> None:
    ceph = Ceph()
    ceph.rules.append({"rule_name": "muster_osd", "rule_id": 2})
    said = told(ceph, failure_domain="osd")
    assert said[0] == "config set global osd_pool_default_crush_rule 2"
    assert f"osd pool set {DATA} crush_rule muster_osd" in said
    assert not [line for line in said if "theirs" in line]


def test_a_single_copy_is_told_as_one_who_is_sure_of_it() -> None:
    said = told(Ceph(), copies=1)
    assert said[:3] == [
        "config set global osd_pool_default_size 1",
        "config set mon mon_allow_pool_size_one true",
        "config set mon mon_warn_on_pool_no_redundancy false",
    ]
    assert f"osd pool set {DATA} size 1 --yes-i-really-mean-it" in said
    assert f"osd pool set {DATA} min_size 1" in said


def test_the_data_pool_is_called_large_where_all_monitors_know_it() -> None:
    ceph = Ceph("18.2.7")
    ceph.pools[DATA]["flags_names"] = "hashpspool"
    assert told(ceph) == [f"osd pool set {DATA} bulk true"]


@pytest.mark.parametrize(("copies", "least"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_writes_go_on_while_one_copy_of_three_is_away(copies, least) -> None:
    assert ceph_filesystem.min_size(copies) == least


def test_a_check_tells_nothing() -> None:
    ceph = Ceph("18.2.7")
    ceph.filesystems = []
    assert told(ceph, act=False) == [
        f"fs new cephfs {META} {DATA}",
        "fs set cephfs standby_count_wanted 1",
    ]


def test_a_check_of_a_host_without_a_cluster_says_all(run_module, stand_ins) -> None:
    given = {
        "monitor": "s1",
        "name": "cephfs",
        "copies": 3,
        "failure_domain": "host",
        "standbys": 1,
    }
    path = stand_ins({"ceph": "exit 1"})
    done = run_module("ceph_filesystem", given, env={"PATH": path}, check=True)
    assert f"ceph fs new cephfs {META} {DATA}\n" in done["diff"]["after"]
    assert run_module("ceph_filesystem", given, env={"PATH": path})["msg"].startswith("`ceph ")
