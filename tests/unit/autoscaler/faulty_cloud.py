"""A fakecloud with random faults, which reports what happens to each VM."""

import json
import queue
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from controllerkit import COMPUTE, LABELS, OTHER_ZONE, ZONE, Cloud, P
from oracle import Place
from quick import FastClock, FastCloudClock
from schedules import Faults

from muster_sandbox.fakecloud import Settings, operations
from muster_sandbox.fakecloud.api_errors import ApiError, rate_limit
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.server import Server
from muster_sandbox.fakecloud.services.compute import lifecycle, resources
from muster_sandbox.fakecloud.services.compute.build import INSTANCE

FAULTS = (
    "refused: 5xx",
    "refused: 4xx",
    "rate limit",
    "connection reset",
    "never answered",
    "done and never answered",
    "answer lost",
    "answer is no JSON",
    "slow operation",
    "error without detail",
    "missing field",
    "stale list",
    "no room",
    "preempted",
)
INSTANCES = "compute.instances"
MUTATING = ("compute.instances.bulkInsert", "compute.instances.insert", "compute.instances.delete")
BUSY = (
    ApiError(503, "backendError", "Internal error, please try again."),
    ApiError(500, "internalError", "Internal error."),
    ApiError(502, "badGateway", "Bad Gateway"),
)
WRONG = (
    ApiError(400, "resourceNotReady", "The resource is not ready"),
    ApiError(404, "notFound", "The resource was not found"),
    ApiError(408, "requestTimeout", "Request timeout"),
)
NO_DETAIL = OperationError("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count of VMs ...")
OPTIONAL = {
    "operationGroupId",
    "instancesBulkInsertOperationMetadata",
    "httpErrorStatusCode",
    "scheduling",
    "machineType",
}
CALM_TYPE = "n2-standard-2"
CALM = "-calm-"
SLOW_S = (15, 45, 90)
USUAL_S = 1.5
"""How long operations take."""
OLD_LISTS = 4


@dataclass(frozen=True)
class VmChange:
    """What happened to a VM: `born`, `gone`, `deleted`, or its new status."""

    what: str
    vm: Place


@dataclass
class RandomFaults:
    """In the place of fakecloud's `faults`; it runs on the cloud's thread."""

    faults: Faults
    calm: bool = False
    """Whether the current call is for healthy nodes, which get no faults."""
    abort: bool = False
    lists: deque[Reply] = field(default_factory=lambda: deque(maxlen=OLD_LISTS))

    @property
    def waiting(self) -> bool:
        """Whether the server asks for each call."""
        return True

    def strike(self, kind: str, part: float = 1) -> bool:
        return not self.calm and self.faults.strike(kind, part)

    def add(self, *_: object, **__: object) -> None:
        raise AssertionError("the faults of a run are random")

    # --- what fakecloud calls

    def delay_seconds(self, method: str) -> float:
        return 3600 if method and self.faults.strike("never answered", 0.3) else 0

    def drops(self, method: str) -> bool:
        aborts, self.abort = self.abort, False
        return aborts or (bool(method) and self.faults.strike("answer lost", 0.5))

    def refuse(self, method: str) -> None:
        # Healthy nodes need the lists too, so they are refused less.
        part = 1 if method in MUTATING else 0.2
        if self.strike("rate limit", part):
            raise rate_limit("Rate Limit Exceeded")
        if self.strike("refused: 5xx", part):
            raise self.faults.random.choice(BUSY)
        if method in MUTATING and self.strike("refused: 4xx", 3):
            raise self.faults.random.choice(WRONG)

    def operation_error(self, method: str) -> OperationError | None:
        # A failed deletion would leave the VM in STOPPING: fakecloud does not undo it.
        inserts = method.endswith(("insert", "bulkInsert"))
        return NO_DETAIL if inserts and self.strike("error without detail", 8) else None

    # --- answers

    def items(self) -> list[tuple[str, float]]:
        """As `latency_seconds` of fakecloud's settings: how long operations take."""
        slow = self.strike("slow operation", 3)
        return [("compute.instances.*", self.faults.random.choice(SLOW_S) if slow else USUAL_S)]

    def handled(self, handle: Handle, request: Request) -> Reply | Deferred:
        """Answer a request, or do something else."""
        self.calm = CALM in request.path or CALM.encode() in request.content
        if self.strike("connection reset", 0.5):
            self.abort = True
            return Reply(b"")
        reply = handle(request)
        if not isinstance(reply, Reply) or request.path.startswith("/batch/"):
            return reply
        self.calm = CALM in request.path or CALM.encode() in request.content
        if self.strike("done and never answered", 0.4):
            return Deferred(lambda: Reply(b""))
        if request.verb == "GET":
            reply = self._list(request, reply)
        if self.strike("answer is no JSON", 0.5):
            return replace(reply, content=reply.content[: len(reply.content) // 2])
        return reply

    def _list(self, request: Request, reply: Reply) -> Reply:
        if request.path.endswith("/aggregated/instances"):
            self.lists.append(reply)
            if self.strike("stale list"):
                return self.faults.random.choice(self.lists)
        if request.path.endswith(("/operations", "/aggregated/instances")) and self.strike(
            "missing field"
        ):
            lacks = self.faults.random.choice(sorted(OPTIONAL))
            return replace(
                reply, content=json.dumps(_without(json.loads(reply.content), lacks)).encode()
            )
        return reply


def _without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _without(member, key) for name, member in value.items() if name != key}
    return [_without(item, key) for item in value] if isinstance(value, list) else value


def _place(scope: str, name: str, instance: dict[str, Any] | None) -> Place:
    assert instance, f"{name} was not there"
    return name, scope.rpartition("/")[2], instance["id"]


def watch_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the faults whether an operation is for healthy nodes."""
    run = operations._run

    def run_marked(cloud: Any, name: str, pending: dict[str, Any]) -> None:
        if isinstance(cloud.faults, RandomFaults):
            cloud.faults.calm = CALM in json.dumps(pending["arguments"])
        run(cloud, name, pending)

    monkeypatch.setattr(operations, "_run", run_marked)


class FaultyCloud:
    """The cloud of one run; `changes` has what happened to its VMs, in order."""

    def __init__(self, faults: Faults, clock: FastClock) -> None:
        self.faults = faults
        self.server = Server(Settings(), clock=lambda loop: FastCloudClock(loop, clock)).start()
        self.kit = Cloud(self.server)
        self.kit.allow()
        self._calm_template()
        self.changes: queue.SimpleQueue[VmChange] = queue.SimpleQueue()
        self.server.do(lambda _: self._begin())

    def sets(self) -> str:
        """The metadata's attribute."""

        def choices(template: str, machine_type: str, *zones: str) -> dict[str, Any]:
            link = f"{P}/global/instanceTemplates/{template}"
            listed = [
                {"template": link, "zone": zone, "machine_type": machine_type, "spot": False}
                for zone in zones
            ]
            return {"choices": listed, "compact": False}

        return json.dumps(
            {
                "debug": choices("lab-debug-1", "c2-standard-4", ZONE, OTHER_ZONE),
                "calm": choices("lab-calm-1", CALM_TYPE, OTHER_ZONE),
            }
        )

    def stray(self, name: str) -> None:
        """Create a VM that nothing needs."""
        link = f"{P}/global/instanceTemplates/lab-debug-1"
        body = {"name": name, "labels": LABELS}
        path = f"{COMPUTE}/zones/{ZONE}/instances?sourceInstanceTemplate={link}"
        self.kit.post(path, body)

    def limit_room(self) -> None:
        """Leave room for one more VM in the first zone."""
        self.server.do(lambda cloud: cloud.settings.capacity.update({(ZONE, "c2-standard-4"): 2}))

    def trouble(self) -> None:
        """Perhaps preempt VMs, or change the capacity of a zone."""
        self.server.loop.call_soon_threadsafe(self._trouble)

    def heal(self) -> None:
        """Remove all limits of capacity."""
        self.server.do(lambda cloud: cloud.settings.capacity.clear())

    def left(self) -> int:
        """How many VMs exist."""
        return self.server.do(lambda cloud: sum(1 for _ in cloud.store.all(INSTANCES)))

    def close(self) -> list[str]:
        """Stop; return fakecloud's internal errors."""
        self.kit.clients.close()
        self.server.stop()
        return self.server.cloud.failures

    def _calm_template(self) -> None:
        path = f"{COMPUTE}/global/instanceTemplates"
        template = self.kit.owner.get(f"{path}/lab-debug-1").json()
        properties = {**template["properties"], "machineType": CALM_TYPE}
        self.kit.post(path, {"name": "lab-calm-1", "properties": properties})

    def _begin(self) -> None:
        cloud = self.server.cloud
        faults = RandomFaults(self.faults)
        put, delete = cloud.store.put, cloud.store.delete

        def watched_put(kind: str, scope: str, name: str, resource: dict[str, Any]) -> None:
            if kind == INSTANCES:
                self._record(cloud.store.get(kind, scope, name), scope, name, resource)
            put(kind, scope, name, resource)

        def watched_delete(kind: str, scope: str, name: str) -> None:
            if kind == INSTANCES:
                self.changes.put(
                    VmChange("gone", _place(scope, name, cloud.store.get(kind, scope, name)))
                )
            delete(kind, scope, name)

        cloud.store.put = watched_put  # type: ignore[method-assign]
        cloud.store.delete = watched_delete  # type: ignore[method-assign]
        cloud.faults = faults  # type: ignore[assignment]
        cloud.settings.latency_seconds = faults  # type: ignore[assignment]
        cloud.middleware = faults.handled

    def _record(
        self, before: dict[str, Any] | None, scope: str, name: str, now: dict[str, Any]
    ) -> None:
        vm = _place(scope, name, now)
        if before is None:
            self.changes.put(VmChange("born", vm))
        if before is None or before["status"] != now["status"]:
            preempted = now["selfLink"] in self.server.cloud.preempted
            deleted = now["status"] == "STOPPING" and not preempted
            self.changes.put(VmChange("deleted" if deleted else now["status"], vm))

    def _trouble(self) -> None:
        cloud, faults = self.server.cloud, self.faults
        if faults.strike("no room", 0.2):
            zone = faults.random.choice([ZONE, OTHER_ZONE])
            cloud.settings.capacity[zone, "c2-standard-4"] = faults.random.choice([0, 1, 3])
        elif faults.random.random() < 0.03:
            cloud.settings.capacity.clear()
        for scope, name, instance in list(cloud.store.all(INSTANCES)):
            runs = instance["status"] == "RUNNING" and CALM not in name
            if runs and faults.strike("preempted", 0.2):
                zone = scope.rpartition("/")[2]
                where = resources.Reference(
                    "demo-project", f"zones/{zone}", INSTANCE.collection, name
                )
                lifecycle.preempt(cloud, where)
