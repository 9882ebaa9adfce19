"""A fakecloud that answers as a bad day's Google would, and tells what became of each VM."""

import json
import queue
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from controllerkit import COMPUTE, LABELS, OTHER_ZONE, ZONE, Cloud, P
from schedules import Faults

from muster_sandbox.fakecloud import Settings, operations
from muster_sandbox.fakecloud.errors import ApiError, rate_limit
from muster_sandbox.fakecloud.faults import OperationError
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request
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
SLOW_S = (1, 3, 6)
OLD_LISTS = 4


@dataclass(frozen=True)
class Moved:
    """What became of a VM: `born`, `gone`, `deleted`, or its new status."""

    what: str
    vm: tuple[str, str]


@dataclass
class Wild:
    """In the place of fakecloud's `faults`; all on the cloud's thread."""

    faults: Faults
    latency_s: float = 0.1
    calm: bool = False
    """Whether what is being done is for healthy nodes."""
    abort: bool = False
    lists: deque[Reply] = field(default_factory=lambda: deque(maxlen=OLD_LISTS))

    @property
    def waiting(self) -> bool:
        """Whether the server is to ask for each call."""
        return True

    def strike(self, kind: str, part: float = 1) -> bool:
        return not self.calm and self.faults.strike(kind, part)

    def add(self, *_: object, **__: object) -> None:
        raise AssertionError("a game's faults are drawn")

    # --- what fakecloud asks

    def delay_seconds(self, method: str) -> float:
        return 3600 if method and self.faults.strike("never answered", 0.3) else 0

    def drops(self, method: str) -> bool:
        aborts, self.abort = self.abort, False
        return aborts or (bool(method) and self.faults.strike("answer lost", 0.5))

    def refuse(self, method: str) -> None:
        # Lists are everybody's, so they are refused less.
        part = 1 if method in MUTATING else 0.2
        if self.strike("rate limit", part):
            raise rate_limit("Rate Limit Exceeded")
        if self.strike("refused: 5xx", part):
            raise self.faults.random.choice(BUSY)
        if method in MUTATING and self.strike("refused: 4xx", 2):
            raise self.faults.random.choice(WRONG)

    def operation_error(self, method: str) -> OperationError | None:
        # A deletion that fails would leave a VM in STOPPING here: fakecloud does not take it back.
        inserts = method.endswith(("insert", "bulkInsert"))
        return NO_DETAIL if inserts and self.strike("error without detail", 8) else None

    # --- what is answered

    def items(self) -> list[tuple[str, float]]:
        """As `latency_seconds` of fakecloud's settings: what operations take."""
        slow = self.strike("slow operation", 3)
        return [("compute.instances.*", self.faults.random.choice(SLOW_S) if slow else 0.1)]

    def handled(self, handle: Handle, request: Request) -> Reply | Deferred:
        """Answer a request, or do something else."""
        self.calm = CALM in request.path or CALM.encode() in request.content
        if self.strike("connection reset", 0.5):
            self.abort = True
            return Reply(b"")
        found = handle(request)
        if not isinstance(found, Reply) or request.path.startswith("/batch/"):
            return found
        self.calm = CALM in request.path or CALM.encode() in request.content
        if self.strike("done and never answered", 0.4):
            return Deferred(lambda: Reply(b""))
        if request.verb == "GET":
            found = self._list(request, found)
        if self.strike("answer is no JSON", 0.5):
            return replace(found, content=found.content[: len(found.content) // 2])
        return found

    def _list(self, request: Request, found: Reply) -> Reply:
        if request.path.endswith("/aggregated/instances"):
            self.lists.append(found)
            if self.strike("stale list"):
                return self.faults.random.choice(self.lists)
        if request.path.endswith(("/operations", "/aggregated/instances")) and self.strike(
            "missing field"
        ):
            lacks = self.faults.random.choice(sorted(OPTIONAL))
            return replace(
                found, content=json.dumps(_without(json.loads(found.content), lacks)).encode()
            )
        return found


def _without(found: Any, key: str) -> Any:
    if isinstance(found, dict):
        return {name: _without(each, key) for name, each in found.items() if name != key}
    return [_without(each, key) for each in found] if isinstance(found, list) else found


def watch_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let faults know for whose VMs an operation is."""
    run = operations._run

    def told(cloud: Any, name: str, pending: dict[str, Any]) -> None:
        if isinstance(cloud.faults, Wild):
            cloud.faults.calm = CALM in json.dumps(pending["arguments"])
        run(cloud, name, pending)

    monkeypatch.setattr(operations, "_run", told)


class WildCloud:
    """The cloud of one game; `moved` has what became of its VMs, in order."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.server = Server(Settings()).start()
        self.kit = Cloud(self.server)
        self.kit.allow()
        self._calm_template()
        self.moved: queue.SimpleQueue[Moved] = queue.SimpleQueue()
        self.server.do(lambda _: self._begin())

    def sets(self) -> str:
        """The metadata's attribute."""

        def choices(template: str, machine_type: str, *zones: str) -> dict[str, Any]:
            link = f"{P}/global/instanceTemplates/{template}"
            found = [
                {"template": link, "zone": zone, "machine_type": machine_type, "spot": False}
                for zone in zones
            ]
            return {"choices": found, "compact": False}

        return json.dumps(
            {
                "debug": choices("lab-debug-1", "c2-standard-4", ZONE, OTHER_ZONE),
                "calm": choices("lab-calm-1", CALM_TYPE, OTHER_ZONE),
            }
        )

    def stray(self, name: str) -> None:
        """Make a VM that nobody needs."""
        link = f"{P}/global/instanceTemplates/lab-debug-1"
        body = {"name": name, "labels": LABELS}
        path = f"{COMPUTE}/zones/{ZONE}/instances?sourceInstanceTemplate={link}"
        self.kit.post(path, body)

    def short(self) -> None:
        """There is room for one more VM only at the first place."""
        self.server.do(lambda cloud: cloud.settings.capacity.update({(ZONE, "c2-standard-4"): 2}))

    def trouble(self) -> None:
        """Now and then: VMs are taken back, zones run short."""
        self.server.loop.call_soon_threadsafe(self._trouble)

    def heal(self) -> None:
        """There is room again."""
        self.server.do(lambda cloud: cloud.settings.capacity.clear())

    def left(self) -> int:
        """How many VMs there are."""
        return self.server.do(lambda cloud: sum(1 for _ in cloud.store.all(INSTANCES)))

    def close(self) -> list[str]:
        """End; errors of fakecloud's own."""
        self.kit.clients.close()
        self.server.stop()
        return self.server.cloud.failures

    def _calm_template(self) -> None:
        path = f"{COMPUTE}/global/instanceTemplates"
        found = self.kit.owner.get(f"{path}/lab-debug-1").json()["properties"]
        properties = {**found, "machineType": CALM_TYPE}
        self.kit.post(path, {"name": "lab-calm-1", "properties": properties})

    def _begin(self) -> None:
        cloud = self.server.cloud
        wild = Wild(self.faults)
        put, delete = cloud.store.put, cloud.store.delete

        def watched_put(kind: str, scope: str, name: str, resource: dict[str, Any]) -> None:
            if kind == INSTANCES:
                self._seen(cloud.store.get(kind, scope, name), scope, name, resource)
            put(kind, scope, name, resource)

        def watched_delete(kind: str, scope: str, name: str) -> None:
            if kind == INSTANCES:
                self.moved.put(Moved("gone", (name, scope.rpartition("/")[2])))
            delete(kind, scope, name)

        cloud.store.put = watched_put  # type: ignore[method-assign]
        cloud.store.delete = watched_delete  # type: ignore[method-assign]
        cloud.faults = wild  # type: ignore[assignment]
        cloud.settings.latency_seconds = wild  # type: ignore[assignment]
        cloud.middleware = wild.handled

    def _seen(
        self, before: dict[str, Any] | None, scope: str, name: str, now: dict[str, Any]
    ) -> None:
        vm = name, scope.rpartition("/")[2]
        if before is None:
            self.moved.put(Moved("born", vm))
        if before is None or before["status"] != now["status"]:
            taken = now["selfLink"] in self.server.cloud.preempted
            deleted = now["status"] == "STOPPING" and not taken
            self.moved.put(Moved("deleted" if deleted else now["status"], vm))

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
