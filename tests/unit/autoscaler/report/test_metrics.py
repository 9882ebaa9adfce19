import socket
from urllib.request import urlopen

import pytest
from driverkit import BUSY
from viewkit import Watched, cold_start

from muster.autoscaler.compute.driver import Google
from muster.autoscaler.report.metrics import Metrics, MetricsError, serve


@pytest.fixture
def watched(tmp_path):
    made = Watched(tmp_path)
    made.round(90, nodes={"debug-[0-3]": "off", "spot-0": "off"}, vms={})
    yield made
    made.events.close()


def test_nodes_are_counted_by_set_and_stage(watched):
    cold_start(watched)
    assert watched.sample("muster_nodes", set="debug", stage="off") == 3
    assert watched.sample("muster_nodes", set="debug", stage="busy") == 1
    assert watched.sample("muster_nodes", set="debug", stage="booting") == 0
    assert watched.sample("muster_nodes", set="spot", stage="off") == 1


def test_a_cold_start_is_measured_phase_by_phase(watched):
    cold_start(watched)
    for phase, seconds in (("created", 6), ("running", 5), ("registered", 20)):
        assert watched.sample("muster_cold_start_seconds_sum", phase=phase) == seconds
        assert watched.sample("muster_cold_start_seconds_count", phase=phase) == 1


def test_requests_and_actions_are_counted(watched):
    cold_start(watched)
    watched.stops("debug-0 in a", 200)
    watched.round(201, nodes={"debug-0": "powering_down"})
    assert watched.sample("muster_requests_total") == 1
    assert watched.sample("muster_requested_nodes_total") == 1
    assert watched.sample("muster_actions_total", action="insert") == 1
    assert watched.sample("muster_actions_total", action="release") == 1
    assert watched.sample("muster_actions_total", action="delete") == 1


def test_a_pool_without_room_is_shown(watched):
    pool = {"zone": "europe-west4-a", "machine_type": "n1", "spot": "no", "gpus": ""}
    watched.round(
        100, nodes={"debug-0": "powering_up"}, requests={"r": {"at": 100, "nodes": "debug-0"}}
    )
    assert watched.sample("muster_breaker", **pool) is None
    watched.round(101, events=["refused debug-0: ZONE_RESOURCE_POOL_EXHAUSTED"])
    assert watched.sample("muster_breaker", **pool) == 1
    watched.round(170)
    assert watched.sample("muster_breaker", **pool) == 0.5


def test_readings_have_an_age_from_the_first_one_on(tmp_path):
    watched = Watched(tmp_path)
    watched.round(100, nodes={"debug-0": "off"}, nodes_at=93, vms_at=0)
    watched.events.close()
    assert watched.sample("muster_reading_age_seconds", what="slurmctld") == 7
    assert watched.sample("muster_reading_age_seconds", what="cloud") is None


def test_room_that_quotas_leave_is_shown(watched):
    watched.round(100, room={"n1 spot in a": 5, "n1 t4:2 in a": 3})
    pool = {"zone": "europe-west4-a", "machine_type": "n1", "spot": "yes", "gpus": ""}
    assert watched.sample("muster_quota_room", **pool) == 5
    pool |= {"spot": "no", "gpus": "t4:2"}
    assert watched.sample("muster_quota_room", **pool) == 3


def test_calls_and_what_is_left_of_the_rate_are_those_of_the_cloud_s_driver(harness):
    metrics = Metrics()

    def sample(name, **labels):
        return metrics.registry.get_sample_value(name, labels)

    google = Google(
        "demo-project",
        "lab",
        harness.events.append,
        None,
        harness.credentials,
        called=metrics.called,
    )
    assert sample("muster_api_pace", group="mutate") is None
    metrics.budget = google.budget
    harness.fault("instances.aggregatedList", times=1, error=BUSY)
    google.vms()
    google.close()
    method = "instances.aggregatedList"
    assert sample("muster_api_calls_total", method=method, code="200") == 1
    assert sample("muster_api_calls_total", method=method, code="backendError") == 1
    assert sample("muster_api_call_seconds_count", method=method) == 2
    assert sample("muster_api_pace", group="mutate") == 1
    assert sample("muster_api_waited_seconds_total", group="list") >= 0
    assert sample("muster_api_bulk_operations") == 0
    assert sample("muster_api_calls_left", group="mutate") == google.limits.burst


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def test_prometheus_reads_them_at_the_address_that_is_set(watched):
    cold_start(watched)
    port = free_port()
    stop = serve(watched.metrics, ("127.0.0.1", port))
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        stop()
    assert 'muster_nodes{set="debug",stage="busy"} 1.0' in text
    assert 'muster_cold_start_seconds_bucket{le="20.0",phase="registered"} 1.0' in text


def test_before_the_first_pass_there_is_an_answer_too():
    port = free_port()
    stop = serve(Metrics(), ("127.0.0.1", port))
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "muster_requests_total 0.0" in answer.read().decode()
    finally:
        stop()


def test_a_port_that_somebody_has_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MetricsError, match=rf"127.0.0.1:{port}: .*in use; `ss"):
            serve(Metrics(), ("127.0.0.1", port))
