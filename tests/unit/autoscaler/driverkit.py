"""A test harness for Compute Engine's driver: its events, and the fake cloud behind it."""

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from controllerkit import COMPUTE, LABELS, ZONE, Cloud, P
from google.oauth2.credentials import Credentials
from quick import DRIVER_LIMITS, FastClock

from muster.autoscaler.compute.api_client import Limits
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.reconcile.model import (
    Choice,
    Delete,
    Deleted,
    Event,
    Insert,
    Inserted,
    Probe,
    ProbeResult,
    Vm,
)
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request, reply
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES

SOON_S = 90
"""How long a test waits for an event, at most: on a busy machine a thousand calls take a minute."""
MACHINE_TYPE = "c2-standard-4"
CHOICE = Choice(f"{P}/global/instanceTemplates/lab-debug-1", ZONE, MACHINE_TYPE)
BUSY = ApiError(503, "backendError", "Internal error, please try again.")


def names(count: int, start: int = 0) -> tuple[str, ...]:
    return tuple(f"lab-debug-{number}" for number in range(start, start + count))


def lost_vm(number: int, zone: str = ZONE) -> Vm:
    """A VM that is not there."""
    return Vm(f"lab-gone-{number}", zone, str(number), "RUNNING", 0)


class DriverHarness:
    """`google` with a list of its events."""

    def __init__(self, cloud: Cloud, clock: FastClock, limits: Limits | None = None) -> None:
        self.cloud = cloud
        self.clock = clock
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._numbers = 0
        self.credentials = Credentials(cloud.token())
        self.google = Google(
            "demo-project",
            "lab",
            self._tell,
            limits or DRIVER_LIMITS,
            self.credentials,
            clock=clock,
        )
        self.google.send_deletions_until(math.inf)

    def _tell(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def take_events(self, count: int, seconds: float = SOON_S) -> list[Event]:
        """Wait for so many events, and take them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, seconds), self.events
            events, self.events = self.events, []
        return events

    def insert(self, *wanted: str, least: int = 1, action: str = "", **more: Any) -> Inserted:
        self._numbers += 1
        action = action or f"request-{self._numbers}"
        self.google.submit(Insert(action, more.pop("choice", CHOICE), wanted, least, **more))
        (event,) = self.take_events(1)
        assert isinstance(event, Inserted)
        assert event.id == action
        return event

    def delete(self, vm: Vm | str) -> Deleted:
        vm = vm if isinstance(vm, Vm) else self.vm(vm)
        self.google.submit(Delete(vm, "idle"))
        (event,) = self.take_events(1)
        assert isinstance(event, Deleted)
        assert event.vm == vm
        return event

    def vm(self, name: str, zone: str = ZONE) -> Vm:
        """The VM of a name, as a list has it; there may be none."""
        stored = self.cloud.server.do(
            lambda fake: fake.store.get("compute.instances", f"demo-project/zones/{zone}", name)
        )
        return Vm(name, zone, (stored or {"id": "7"})["id"], "RUNNING", 0)

    def probe(self, name: str, *, report: bool = False) -> ProbeResult:
        self.google.submit(Probe(name, ZONE, report))
        (event,) = self.take_events(1)
        assert isinstance(event, ProbeResult)
        assert event.name == name
        return event

    def names(self) -> set[str]:
        """The names of all VMs, as the owner sees them."""
        listed = self.cloud.server.do(
            lambda fake: [name for _, name, _ in fake.store.all("compute.instances")]
        )
        return set(listed)

    def make(self, name: str, zone: str = ZONE, **more: Any) -> None:
        """Make a VM by hand."""
        body = {"name": name, "labels": LABELS, **more}
        path = f"{COMPUTE}/zones/{zone}/instances?sourceInstanceTemplate={CHOICE.template}"
        self.cloud.post(path, body)

    def remove(self, name: str) -> None:
        """Delete a VM behind the autoscaler's back."""
        answer = self.cloud.owner.delete(f"{COMPUTE}/zones/{ZONE}/instances/{name}")
        assert answer.status_code == 200, answer.text

    def report(self, name: str, text: str) -> None:
        """Let a VM report how far its boot is."""
        scope = f"demo-project/zones/{ZONE}/{name}"
        self.cloud.server.do(
            lambda fake: fake.store.put(GUEST_ATTRIBUTES, scope, "muster/report", {"value": text})
        )

    def forget(self, member: str) -> None:
        """Remove a member from all that Google stores from now on."""
        self.rewrite(lambda resource: {key: resource[key] for key in resource if key != member})

    def rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change all that Google stores from now on."""
        put = self.cloud.server.cloud.store.put

        def changed(kind: str, scope: str, name: str, resource: dict[str, Any]) -> None:
            put(kind, scope, name, change(resource))

        self.cloud.server.cloud.store.put = changed  # type: ignore[method-assign]

    def fault(self, pattern: str, **more: Any) -> None:
        """Let calls of a method of Compute Engine fail, or of `batch`: many calls in one."""
        method = pattern if pattern == "batch" else f"compute.{pattern}"
        self.cloud.server.cloud.faults.add(method, **more)

    def refuse_second(self, pattern: str, ending: str, error: ApiError) -> None:
        """Let calls of a method fail after the next one; its paths have this ending."""
        before = self.cloud.server.cloud.middleware

        def watched(handle: Handle, request: Request) -> Reply | Deferred:
            answer = before(handle, request)
            if request.verb == "POST" and request.path.endswith(ending):
                self.fault(pattern, error=error)
            return answer

        self.cloud.server.cloud.middleware = watched

    def hang(self, zone: str) -> None:
        """Answer no calls for a zone any more, nor requests with many calls of which one is."""
        before = self.cloud.server.cloud.middleware
        part = f"/zones/{zone}/"

        def unanswered(handle: Handle, request: Request) -> Reply | Deferred:
            if part in request.path or part.encode() in request.content:
                return Deferred(lambda: Reply(b""))
            return before(handle, request)

        self.cloud.server.cloud.middleware = unanswered

    def inserts(self) -> list[float]:
        """When calls that create VMs reach the cloud, from now on, by the driver's clock."""
        return self.times("POST", "/instances", "/bulkInsert")

    def times(self, verb: str, *endings: str) -> list[float]:
        """When calls of paths with these endings reach the cloud, by the driver's clock."""
        at: list[float] = []
        before = self.cloud.server.cloud.middleware

        def counted(handle: Handle, request: Request) -> Reply | Deferred:
            if request.verb == verb and request.path.endswith(endings):
                at.append(self.clock.monotonic())
            return before(handle, request)

        self.cloud.server.cloud.middleware = counted
        return at

    def calls(self) -> dict[str, int]:
        """Method -> calls until now."""
        counted: dict[str, int] = {}
        for (method, _), count in self.google.budget().calls.items():
            counted[method] = counted.get(method, 0) + count
        return counted


def unreachable(harness: DriverHarness, zone: str, form: str = "zones/{}") -> None:
    """Let Google list all zones but one; without returnPartialSuccess it lists none then."""
    before = harness.cloud.server.cloud.middleware

    def without(handle: Handle, request: Request) -> Reply | Deferred:
        answer = before(handle, request)
        if not isinstance(answer, Reply) or not request.path.endswith("/aggregated/instances"):
            return answer
        query = parse_qs(request.query)
        if query.get("returnPartialSuccess") != ["true"]:
            return reply(BUSY.body(), BUSY.status)
        page = json.loads(answer.content)
        page["items"].pop(f"zones/{zone}", None)
        if form == "WARNING":
            page["items"][f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE"}}
        elif "unreachables" in query["fields"][0].split(","):
            page["unreachables"] = [form.format(zone)]
        return replace(answer, content=json.dumps(page).encode())

    harness.cloud.server.cloud.middleware = without


def until(state: Callable[[], object], seconds: float = SOON_S) -> None:
    """Wait until `state` is true; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not state():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)
