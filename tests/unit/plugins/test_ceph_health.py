"""What a Ceph cluster lacks, in words; answers as 16.2 and 18.2 give them."""

import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_health.py"
SPEC = importlib.util.spec_from_file_location("ceph_health", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_health = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_health)


def check(message, *details, muted=False):
    return {
        "severity": "HEALTH_WARN",
        "summary": {"message": message, "count": 1},
        "detail": [{"message": detail} for detail in details],
        "muted": muted,
    }


def health(status="HEALTH_OK", **checks):
    return {"status": status, "checks": checks, "mutes": []}


def dump(**up):
    return {"osds": [{"osd": int(name[1:]), "up": value, "in": 1} for name, value in up.items()]}


ALL_UP = dump(n0=1, n1=1, n2=1)


def test_a_healthy_cluster_lacks_nothing() -> None:
    assert ceph_health.complaints(health(), ALL_UP, [0, 1, 2]) == []


def test_an_osd_that_never_came_up_is_missed() -> None:
    # It is not yet "in", so the cluster itself complains of nothing.
    said = ceph_health.complaints(health(), dump(n0=1, n1=1, n2=0), [0, 1, 2, 7])
    assert said == ["osd.2 is not up", "osd.7 is not up"]


def test_a_warning_comes_with_its_details() -> None:
    answer = health("HEALTH_WARN", MON_CLOCK_SKEW=check("clock skew on mon.b", "mon.b skew 2.1s"))
    said = ceph_health.complaints(answer, ALL_UP, [])
    assert said == ["MON_CLOCK_SKEW (clock skew on mon.b; mon.b skew 2.1s)"]
    assert "ceph health mute CODE" in ceph_health.remedy(said, 300)


def test_one_that_is_muted_does_not_count() -> None:
    answer = health(OSDMAP_FLAGS=check("noout flag(s) set", muted=True))
    assert ceph_health.complaints(answer, ALL_UP, [0]) == []


def test_a_state_without_a_reason_is_no_health() -> None:
    assert ceph_health.complaints(health("HEALTH_ERR"), ALL_UP, [0]) == ["HEALTH_ERR"]


def test_only_the_first_details_are_told() -> None:
    answer = health("HEALTH_WARN", PG_DEGRADED=check("many", *[f"pg {n}" for n in range(99)]))
    assert ceph_health.complaints(answer, ALL_UP, []) == ["PG_DEGRADED (many; pg 0; pg 1; pg 2)"]


def test_a_check_waits_for_nothing(run_module, stand_ins) -> None:
    path = stand_ins({"ceph": "exit 1"})
    done = run_module("ceph_health", {"osds": [0]}, env={"PATH": path}, check=True)
    assert done["changed"] is False


def test_the_bound_ends_with_the_sentence(run_module, stand_ins) -> None:
    unhealthy = '{"status": "HEALTH_WARN", "checks": {}, "mutes": []}'
    script = f"case \"$*\" in *health*) echo '{unhealthy}';; *) echo '{{\"osds\": []}}';; esac"
    path = stand_ins({"ceph": script})
    done = run_module("ceph_health", {"osds": [4], "timeout_seconds": 0}, env={"PATH": path})
    assert done["msg"].startswith("the Ceph cluster is not healthy after 0 s: osd.4 is not up; fix")


def tree(**hosts):
    """What `ceph osd tree` answers: host -> states of its OSDs."""
    nodes, number = [{"id": -1, "name": "default", "type": "root", "children": []}], 0
    for index, (name, states) in enumerate(hosts.items()):
        ids = list(range(number, number + len(states)))
        nodes.append({"id": -index - 2, "name": name, "type": "host", "children": ids})
        nodes += [
            {"id": osd, "name": f"osd.{osd}", "type": "osd", "status": state}
            for osd, state in zip(ids, states, strict=True)
        ]
        number += len(states)
    return {"nodes": nodes, "stray": []}


def service(name, running, size, *events):
    return {
        "service_name": name,
        "service_type": name.split(".")[0],
        "status": {"running": running, "size": size},
        **({"events": list(events)} if events else {}),
    }


def test_each_host_must_have_its_osds() -> None:
    osd_tree = tree(s1=["up", "up"], s2=["up", "down"])
    wanted = {"s1": 2, "s2": 2, "s3.example.org": 1}
    assert ceph_health.missing_osds(osd_tree, wanted) == [
        "1 of 2 OSDs of s2 are up",
        "0 of 1 OSDs of s3.example.org are up",
    ]
    assert ceph_health.missing_osds(osd_tree, {"s1.example.org": 2, "s2": 1}) == []


def test_a_service_that_lacks_daemons_is_named_with_its_last_error() -> None:
    error = '2026-11-22T19:00:00.0Z service:mds.cephfs [ERROR] "no image"'
    services = [
        service("mon", 3, 3),
        service("mgr", 1, 2, '2026-11-22T19:00:00.0Z service:mgr [INFO] "created"'),
        service("mds.cephfs", 0, 2, error),
    ]
    assert ceph_health.missing_daemons(services) == [
        "1 of 2 mgr run",
        f"0 of 2 mds.cephfs run: {error}",
    ]


def test_the_orchestrator_is_asked_only_where_there_is_one(run_module, stand_ins) -> None:
    script = """
case "$*" in
*health*) echo '{"status": "HEALTH_OK", "checks": {}, "mutes": []}' ;;
*"osd dump"*) echo '{"osds": []}' ;;
*"osd tree"*) echo '{"nodes": []}' ;;
*"orch ls"*) echo '[{"service_name": "mon", "status": {"running": 1, "size": 3}}]' ;;
esac"""
    env = {"PATH": stand_ins({"ceph": script})}
    given = {"osds_of": {"s1": 1}, "orchestrated": True, "timeout_seconds": 0}
    assert run_module("ceph_health", {"timeout_seconds": 0}, env=env)["changed"] is False
    said = run_module("ceph_health", given, env=env)["msg"]
    assert "after 0 s: 0 of 1 OSDs of s1 are up, 1 of 3 mon run; fix" in said
