"""The server: a request over HTTP, its errors, and the server's end."""

import socket
import threading
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest
from fakecloud_calls import ZONE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from muster_sandbox.fakecloud import Settings, handle, open_cloud
from muster_sandbox.fakecloud.call import HANDLERS, Call
from muster_sandbox.fakecloud.clock import LoopClock, ManualClock, Task
from muster_sandbox.fakecloud.http import Request
from muster_sandbox.fakecloud.server import Server

BASE = "/compute/v1/projects/demo-project"
NETWORK = {"name": "lab", "autoCreateSubnetworks": False}


def test_a_connection_that_uvicorn_leaves_open_ends_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
):
    # As one that is accepted while uvicorn closes the others.
    monkeypatch.setattr(HttpToolsProtocol, "shutdown", lambda _: None)
    server = Server().start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert client.recv(4) == b"HTTP"
        server.stop()
        # Until the answer's end; a connection that is open has none, and times out.
        while client.recv(4096):
            pass


class FastClock(LoopClock):
    """An hour ahead, and sixty times as fast."""

    def now(self) -> float:
        return 60 * super().now() + 3600

    def later(self, seconds: float, task: Task) -> None:
        super().later(seconds / 60, task)


def test_its_dates_and_delays_are_by_its_own_clock():
    server = Server(clock=FastClock).start()
    server.do(lambda fake: setattr(fake.settings, "answer_seconds", 30))
    before, began = server.cloud.clock.now(), time.monotonic()
    answer = httpx.get(f"{server.url}{BASE}", headers={"Authorization": "Bearer owner"})
    assert 0.4 < time.monotonic() - began < 10
    date = parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert before + 29 <= date <= server.cloud.clock.now()
    assert len(answer.headers.get_list("date")) == 1
    server.stop()


def test_a_network_is_made_found_and_deleted(http: httpx.Client):
    made = http.post(f"{BASE}/global/networks", json=NETWORK)
    assert made.status_code == 200, made.text
    assert made.headers["content-type"] == "application/json; charset=UTF-8"
    operation = http.get(f"{BASE}/global/operations/{made.json()['name']}").json()
    assert operation["status"] == "DONE"
    network = http.get(f"{BASE}/global/networks/lab").json()
    assert network["id"] == operation["targetId"]
    assert http.get("/compute/beta/projects/demo-project/global/networks/lab").json() == network
    assert http.delete(f"{BASE}/global/networks/lab").status_code == 200
    gone = http.get(f"{BASE}/global/networks/lab")
    assert gone.status_code == 404
    assert gone.json() == {
        "error": {
            "code": 404,
            "message": "The resource 'projects/demo-project/global/networks/lab' was not found",
            "status": "NOT_FOUND",
            "errors": [
                {
                    "domain": "global",
                    "reason": "notFound",
                    "message": "The resource 'projects/demo-project/global/networks/lab' was not "
                    "found",
                }
            ],
        }
    }


def test_what_is_not_implemented_says_its_name(http: httpx.Client):
    known = http.get(f"{BASE}/global/healthChecks")
    assert known.status_code == 501
    assert "compute.healthChecks.list" in known.json()["error"]["message"]
    unknown = http.get("/dns/v1/projects/p/managedZones")
    assert unknown.status_code == 501
    assert "GET /dns/v1/projects/p/managedZones" in unknown.json()["error"]["message"]
    assert http.get(f"{BASE}/global/nonsense").status_code == 404


def test_a_call_without_a_token_is_refused(cloud: Server):
    answer = httpx.get(f"{cloud.url}{BASE}/global/networks", trust_env=False)
    assert answer.status_code == 401


def test_a_body_that_is_no_json_is_refused(http: httpx.Client):
    answer = http.post(f"{BASE}/global/networks", content=b"{")
    assert answer.status_code == 400
    assert answer.json()["error"]["errors"][0]["reason"] == "parseError"


def test_a_bug_is_a_501_and_is_remembered(monkeypatch: pytest.MonkeyPatch):
    """Pulumi's provider repeats a 500 for twenty minutes."""

    def broken(_call: Call) -> dict[str, object]:
        raise KeyError("oops")

    monkeypatch.setitem(HANDLERS, "compute.networks.list", broken)
    cloud = open_cloud()
    path = f"{BASE}/global/networks"
    reply = handle(cloud, Request("GET", path, headers={"authorization": "Bearer owner"}))
    assert getattr(reply, "status", None) == 501
    (failure,) = cloud.failures
    assert "KeyError" in failure
    cloud.close()


def test_connect_is_refused_and_the_host_remembered(cloud: Server):
    """As HTTPS_PROXY the server proves that no call left the machine."""
    with pytest.raises(httpx.ProxyError, match="403"):
        httpx.get("https://compute.googleapis.com/", proxy=cloud.url)
    assert cloud.cloud.refused_hosts == ["compute.googleapis.com:443"]


def test_a_slow_call_leaves_others_alone(cloud: Server, http: httpx.Client):
    cloud.do(lambda fake: fake.faults.add("compute.networks.list", delay_seconds=0.5))
    begun = time.monotonic()
    took: list[float] = []

    def slow() -> None:
        httpx.get(
            f"{cloud.url}{BASE}/global/networks",
            headers={"Authorization": "Bearer owner"},
            trust_env=False,
        )
        took.append(time.monotonic() - begun)

    thread = threading.Thread(target=slow)
    thread.start()
    while cloud.do(lambda fake: len(fake.faults.waiting)):
        assert time.monotonic() - begun < 10
    assert http.get(f"{BASE}/global/firewalls").status_code == 200
    assert not took, "the other call waited"
    thread.join(10)
    assert took[0] >= 0.5


def test_an_answer_is_lost_but_the_call_is_made(cloud: Server, http: httpx.Client):
    cloud.do(lambda fake: fake.faults.add("compute.networks.insert", drop=True))
    with pytest.raises(httpx.TransportError):
        http.post(f"{BASE}/global/networks", json=NETWORK)
    assert http.get(f"{BASE}/global/networks/lab").status_code == 200
    assert http.post(f"{BASE}/global/networks", json=NETWORK).status_code == 409


def test_wait_is_answered_when_the_operation_ends(cloud: Server, http: httpx.Client):
    cloud.do(lambda fake: fake.settings.latency_seconds.update({"*.networks.insert": 0.3}))
    operation = http.post(f"{BASE}/global/networks", json=NETWORK).json()
    assert operation["status"] == "RUNNING"
    done = http.post(f"{BASE}/global/operations/{operation['name']}/wait").json()
    assert done["status"] == "DONE"


def test_the_state_is_there_after_a_restart(tmp_path: Path):
    headers = {"Authorization": "Bearer owner"}
    server = Server(Settings(), tmp_path).start()
    httpx.post(
        f"{server.url}{BASE}/global/networks", json=NETWORK, headers=headers, trust_env=False
    )
    server.stop()
    again = Server(Settings(), tmp_path).start()
    answer = httpx.get(f"{again.url}{BASE}/global/networks/lab", headers=headers, trust_env=False)
    again.stop()
    assert answer.json()["name"] == "lab"
    assert again.cloud.failures == []


def test_a_stopped_server_gives_its_ports_back(cloud: Server):
    server = Server(Settings()).start()
    server.stop()
    for port in (server.port, server.metadata_port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_time_passes_in_order():
    clock = ManualClock(100)
    seen: list[tuple[str, float]] = []
    clock.later(5, lambda: seen.append(("b", clock.now())))
    clock.later(1, lambda: clock.later(1, lambda: seen.append(("a", clock.now()))))
    clock.report(lambda: seen.append(("now", clock.now())))
    clock.advance(10)
    assert seen == [("now", 100), ("a", 102), ("b", 105)]
    assert clock.now() == 110


def test_a_task_that_fails_is_remembered():
    cloud = open_cloud()
    cloud.later(1, lambda: print(ZONE[99]))  # noqa: T201 (it never gets so far)
    assert isinstance(cloud.clock, ManualClock)
    cloud.clock.advance(1)
    assert len(cloud.failures) == 1
    cloud.close()
