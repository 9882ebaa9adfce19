"""Rate limits, delayed answers, and the callback for each call."""

import threading
import time

import httpx
import pytest
from fakecloud_calls import ZONE, Caller, instance

from muster.autoscaler.compute import http_batch
from muster_sandbox.fakecloud import Cloud, handle
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.http import Request
from muster_sandbox.fakecloud.rate_limits import Group, group_of
from muster_sandbox.fakecloud.server import Server

BASE = "/compute/v1/projects/demo-project"


@pytest.mark.parametrize(
    ("method", "group"),
    [
        ("compute.instances.aggregatedList", Group.LIST),
        ("compute.zoneOperations.list", Group.LIST),
        ("compute.instances.get", Group.READ),
        ("compute.instances.getGuestAttributes", Group.READ),
        ("compute.instances.bulkInsert", Group.CHANGE),
        ("compute.instances.delete", Group.CHANGE),
    ],
)
def test_the_group_of_a_method(method, group):
    assert group_of(method) is group


def test_calls_above_the_rate_are_refused_until_there_is_room_again(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    fake.settings.calls_per_second = 2
    for _ in range(2):
        lab.get(f"{ZONE}/instances")
    assert lab.refused("GET", f"{ZONE}/instances")[:2] == (403, "rateLimitExceeded")
    fake.clock.advance(0.5)
    lab.get(f"{ZONE}/instances")
    assert lab.refused("GET", f"{ZONE}/instances")[:2] == (403, "rateLimitExceeded")
    fake.clock.advance(60)
    for _ in range(2):
        lab.get(f"{ZONE}/instances")
    assert lab.refused("GET", f"{ZONE}/instances")[:2] == (403, "rateLimitExceeded")


def test_a_group_has_a_limit_of_its_own(fake: Cloud, lab: Caller):
    fake.settings.calls_per_second = 1
    lab.get(f"{ZONE}/instances")
    lab.post(f"{ZONE}/instances", instance("n"))
    assert lab.refused("DELETE", f"{ZONE}/instances/n")[:2] == (403, "rateLimitExceeded")
    assert lab.get(f"{ZONE}/instances/n")["name"] == "n"


def test_each_call_of_a_batch_counts_and_is_heard(fake: Cloud, lab: Caller):
    heard: list[tuple[str, int]] = []
    fake.heard = lambda method, _came, status: heard.append((method, status))
    fake.settings.calls_per_second = 2
    calls = [("GET", f"{BASE}/{ZONE}/instances")] * 3
    headers = {"authorization": "Bearer owner", "content-type": http_batch.CONTENT_TYPE}
    handle(
        fake,
        Request("POST", "/batch/compute/v1", headers=headers, content=http_batch.request(calls)),
    )
    assert heard == [("compute.instances.list", status) for status in (200, 200, 403)]


def test_a_call_is_heard_with_its_time_whatever_comes_of_it(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    heard: list[tuple[str, float, int]] = []
    fake.heard = lambda *call: heard.append(call)
    begun = fake.clock.now()
    lab.get(f"{ZONE}/instances")
    fake.clock.advance(1)
    lab.refused("GET", f"{ZONE}/instances/none")
    assert heard == [
        ("compute.instances.list", begun, 200),
        ("compute.instances.get", begun + 1, 404),
    ]


def test_each_answer_comes_later_and_others_are_served_meanwhile(cloud: Server, http: httpx.Client):
    cloud.do(lambda fake: setattr(fake.settings, "answer_seconds", 0.3))
    took: list[float] = []

    def call() -> None:
        begun = time.monotonic()
        assert http.get(f"{BASE}/global/networks", timeout=60).status_code == 200
        took.append(time.monotonic() - begun)

    threads = [threading.Thread(target=call) for _ in range(20)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    whole = time.monotonic() - begun
    assert len(took) == 20
    assert min(took) >= 0.3
    assert whole < 20 * 0.3 / 2, "they waited for each other"
