"""What is applied to the orchestrator of a Ceph cluster; its answers as 16.2 and 18.2 give them."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_orchestrator.py"
SPEC = importlib.util.spec_from_file_location("ceph_orchestrator", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_orchestrator = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_orchestrator)

PATHS = ["/dev/disk/by-id/nvme-A", "/dev/disk/by-id/nvme-B"]
HOSTS = [
    {"name": "s1", "address": "192.0.2.41", "devices": PATHS},
    {"name": "s2", "address": "192.0.2.42", "devices": ["/dev/disk/by-id/nvme-C"]},
]
SERVICES = [
    {"service_type": "mon", "placement": {"hosts": ["s1"]}},
    {"service_type": "mgr", "placement": {"hosts": ["s1", "s2"]}},
    {"service_type": "mds", "service_id": "cephfs", "placement": {"hosts": ["s1", "s2"]}},
]
OSDS = [
    {
        "service_type": "osd",
        "service_id": host["name"],
        "placement": {"hosts": [host["name"]]},
        "spec": {"data_devices": {"paths": host["devices"]}},
    }
    for host in HOSTS
]


class Ceph:
    """An orchestrator that has all of it, but for what a test changes."""

    def __init__(self):
        self.hosts = [
            {"hostname": "s1", "addr": "192.0.2.41", "labels": ["_admin"], "status": ""},
            {"hostname": "s2", "addr": "192.0.2.42", "labels": [], "status": ""},
        ]
        names = ("mon", "mgr", "mds.cephfs", "osd.s1", "osd.s2")
        self.services = [
            {"service_name": name, **json.loads(json.dumps(service))}
            for name, service in zip(names, [*SERVICES, *OSDS], strict=True)
        ]
        for service in self.services[3:]:
            service["spec"] |= {"filter_logic": "AND", "objectstore": "bluestore"}

    def ask(self, *words):
        return self.services if words == ("orch", "ls", "--export") else self.hosts


def differing(ceph, services=SERVICES):
    wanted = ceph_orchestrator.specification(HOSTS, "s1", services)
    return ceph_orchestrator.differing(ceph, wanted)


def test_what_is_there_is_not_applied_again() -> None:
    assert differing(Ceph()) == []


def test_hosts_come_first_and_one_of_them_has_the_administrator_s_key() -> None:
    wanted = ceph_orchestrator.specification(HOSTS, "s1", SERVICES)
    assert [entry["service_type"] for entry in wanted] == [
        *("host", "host", "mon", "mgr", "mds", "osd", "osd")
    ]
    assert [entry["labels"] for entry in wanted[:2]] == [["_admin"], []]


def test_each_host_has_osds_on_its_own_disks() -> None:
    assert ceph_orchestrator.specification(HOSTS, "s1", SERVICES)[-2:] == OSDS


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda ceph: ceph.hosts.pop(), ["host s2"]),
        (lambda ceph: ceph.hosts[1].update(addr="192.0.2.9"), ["host s2"]),
        (lambda ceph: ceph.hosts[0].update(labels=[]), ["host s1"]),
        (lambda ceph: ceph.hosts[1].update(labels=["theirs"]), []),
        (lambda ceph: ceph.services.pop(2), ["mds.cephfs"]),
        (lambda ceph: ceph.services[0].update(unmanaged=True), ["mon"]),
        (lambda ceph: ceph.services[0].update(placement={"count": 5}), ["mon"]),
        (lambda ceph: ceph.services[0]["placement"]["hosts"].append("s9"), ["mon"]),
        (lambda ceph: ceph.services[1]["placement"]["hosts"].reverse(), []),
        (lambda ceph: ceph.services[3]["spec"]["data_devices"].update(paths=PATHS[:1]), ["osd.s1"]),
        (lambda ceph: ceph.services[3]["spec"].update(data_devices={"all": True}), ["osd.s1"]),
        (lambda ceph: ceph.services[4]["placement"]["hosts"].append("s1"), ["osd.s2"]),
    ],
)
def test_only_a_difference_is_one(change, names) -> None:
    ceph = Ceph()
    change(ceph)
    assert differing(ceph) == names


def apply(run_module, stand_ins, tmp_path, *, check=False, fails=False):
    """Run the module on an orchestrator that has nothing but what bootstrap leaves."""
    left = json.dumps([{"service_name": "mon", "service_type": "mon", "unmanaged": True}])
    script = f"""
case "$*" in
*"orch host ls"*) echo '[]' ;;
*"orch ls --export"*) echo '{left}' ;;
*"orch apply -i -") cat >{tmp_path}/applied; {"echo EINVAL: s2 >&2; exit 22" if fails else ":"} ;;
*) exit 9 ;;
esac"""
    given = {"hosts": HOSTS, "admin": "s1", "services": SERVICES}
    env = {"PATH": stand_ins({"ceph": script})}
    return run_module("ceph_orchestrator", given, check=check, env=env)


def test_all_of_it_is_applied_at_once(run_module, stand_ins, tmp_path) -> None:
    done = apply(run_module, stand_ins, tmp_path)
    assert done["changed"] is True
    assert "ceph orch apply: osd.s2\n" in done["diff"]["after"]
    documents = (tmp_path / "applied").read_text().split("\n---\n")
    assert [json.loads(text) for text in documents] == ceph_orchestrator.specification(
        HOSTS, "s1", SERVICES
    )


def test_a_check_applies_nothing(run_module, stand_ins, tmp_path) -> None:
    assert apply(run_module, stand_ins, tmp_path, check=True)["changed"] is True
    assert not (tmp_path / "applied").exists()


def test_a_host_that_the_manager_does_not_reach_is_told(run_module, stand_ins, tmp_path) -> None:
    said = apply(run_module, stand_ins, tmp_path, fails=True)
    assert said["msg"] == "`ceph orch apply -i -` as client.admin: EINVAL: s2"
