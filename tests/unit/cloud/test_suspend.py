"""SuspendProgram: the VMs of nodes are gone, and no others."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from nodes_kit import PROJECT, ZONES, Lab

from muster.fakecloud.errors import ApiError
from muster.fakecloud.faults import OperationError

UNAVAILABLE = ApiError(503, "backendError", "Backend Error")
INTERNAL = OperationError("INTERNAL_ERROR", "Internal error.", 500, "INTERNAL ERROR")


def test_the_named_ones_are_gone_and_no_others(lab: Lab):
    for number in range(3):
        lab.make(f"lab-debug-{number}")
    assert lab.run("suspend", "lab-debug-[0-1]") == 0
    assert lab.states() == {"lab-debug-2": "RUNNING a"}
    assert lab.calls() == []


def test_what_is_not_there_is_gone(lab: Lab):
    assert lab.run("suspend", "lab-debug-[0-9]") == 0


def test_it_finds_them_in_any_zone_and_state(lab: Lab):
    for zone in ZONES:
        lab.make("lab-debug-0", zone)
    lab.ok(f"/compute/v1/{PROJECT}/zones/{ZONES[1]}/instances/lab-debug-0/stop", {})
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {}


def test_somebody_elses_vm_of_that_name_stays(lab: Lab):
    lab.make("lab-debug-0", labels={"muster-cluster": "other"})
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {"lab-debug-0": "RUNNING a"}


@pytest.mark.parametrize("method", ["delete", "aggregatedList"])
def test_a_server_that_is_out_of_order_for_a_moment_costs_a_moment(lab: Lab, method: str):
    lab.make("lab-debug-0")
    lab.do(lambda cloud: cloud.faults.add(f"*.instances.{method}", times=2, error=UNAVAILABLE))
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {}


def test_an_answer_that_is_lost_does_no_harm(lab: Lab):
    lab.make("lab-debug-0")
    lab.do(lambda cloud: cloud.faults.add("*.instances.delete", drop=True))
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {}


def test_a_deletion_that_fails_is_asked_for_again(lab: Lab):
    lab.make("lab-debug-0")
    lab.do(lambda cloud: cloud.faults.add("*.instances.delete", operation_error=INTERNAL))
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {}
    assert "INTERNAL_ERROR" in lab.said


def test_a_deletion_that_takes_too_long_is_said(lab: Lab):
    lab.make("lab-debug-0")
    lab.configure(suspend_s=1)
    lab.server.cloud.settings.latency_seconds["compute.instances.delete"] = 100
    assert lab.run("suspend", "lab-debug-0") == 1
    assert "lab-debug-0: not gone after 1 s" in lab.said


def test_it_needs_no_templates(lab: Lab):
    lab.make("lab-debug-0")
    lab.templates("{")
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {}


def test_it_says_when_it_has_no_settings(lab: Lab):
    lab.make("lab-debug-0")
    lab.settings.unlink()
    assert lab.run("suspend", "lab-debug-0") == 2
    assert "run site.yml" in lab.said
    assert lab.run("suspend") == 2
    assert lab.states() == {"lab-debug-0": "RUNNING a"}


def test_nodes_that_did_not_register_are_powered_down(lab: Lab):
    lab.make("lab-debug-0")
    assert lab.run("resume_failed", "lab-debug-[0-1]") == 0
    assert lab.calls() == ["update nodename=lab-debug-[0-1] state=power_down"]
    lab.scontrol(status=1)
    assert lab.run("resume_failed", "lab-debug-0") == 1
    assert lab.run("resume_failed") == 2


@pytest.fixture
def moody(lab: Lab) -> Iterator[list[int]]:
    """A metadata server that answers with these statuses, the last one from then on."""
    statuses = [404, 503, 200]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
            self.end_headers()
            self.wfile.write(b"demo-project")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        lab.environment["GCE_METADATA_HOST"] = f"127.0.0.1:{server.server_port}"
        yield statuses
        server.shutdown()


def test_a_metadata_server_that_is_away_is_waited_for(lab: Lab, moody: list[int]):
    lab.make("lab-debug-0")
    assert lab.run("suspend", "lab-debug-0") == 0
    assert lab.states() == {}


def test_a_metadata_server_that_stays_away_is_said(lab: Lab, moody: list[int]):
    lab.configure(suspend_s=1)
    moody[:] = [404]
    assert lab.run("suspend", "lab-debug-0") == 1
    assert "the metadata server answers 404 to project/project-id" in lab.said
