"""Compute Engine's operations: the answer to a change, and the work that ends later.

https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses#handling_api_responses

The work of an operation is a function registered by name with `@work`; its name and arguments are
stored, so an operation that is running when fakecloud ends continues when it starts again.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from muster_sandbox.fakecloud.api_errors import invalid
from muster_sandbox.fakecloud.call import Call
from muster_sandbox.fakecloud.clock import timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.injected_faults import OperationError

LINK = "https://www.googleapis.com/compute/v1/"
KIND = "compute.operations"
PENDING = "compute.work"
REQUESTS = "compute.requests"

Finish = Callable[[OperationError | None], None]
Run = Callable[[Cloud, Resource, Finish], None]
Undo = Callable[[Cloud, Resource], None]


@dataclass(frozen=True, slots=True)
class Work:
    """`run` does the work and calls `finish`, now or later; `undo` reverts the call's changes."""

    run: Run
    undo: Undo | None


WORK: dict[str, Work] = {}


def work(name: str, undo: Undo | None = None) -> Callable[[Run], Run]:
    """Register the work of operations under a name."""

    def register(run: Run) -> Run:
        WORK[name] = Work(run, undo)
        return run

    return register


@work("nothing")
def _nothing(_cloud: Cloud, _arguments: Resource, finish: Finish) -> None:
    finish(None)


def new_id() -> str:
    """A numeric id as Google gives them: a 19-digit uint64 as a string."""
    return str(10**18 + secrets.randbelow(8 * 10**18))


def begin(
    call: Call,
    operation_type: str,
    location: str,
    target: str,
    target_id: str,
    *,
    work: str = "nothing",
    arguments: Resource | None = None,
    group: str = "",
    extra: Resource | None = None,
) -> Resource:
    """Start an operation and return its present state (already DONE if the work takes no time).

    `location` is "zones/Z", "regions/R" or "global", `target` the resource's path from projects/
    on. `group` becomes operationGroupId; `extra` are further members.
    """
    cloud = call.cloud
    seconds = latency_seconds(cloud, call.method)
    operation = open_(call, operation_type, location, target, target_id, group=group, extra=extra)
    name, scope = operation["name"], f"{call.project}/{location}"
    request_id = call.query.get("requestId")
    if request_id:
        remembered = {"scope": scope, "name": name}
        cloud.store.put(REQUESTS, f"{call.project}/{call.method}", request_id, remembered)
    pending = {
        "scope": scope,
        "method": call.method,
        "work": work,
        "arguments": arguments or {},
        "due": cloud.clock.now() + seconds,
    }
    if seconds:
        cloud.later(seconds, lambda: _run(cloud, name, pending))
    else:
        _run(cloud, name, pending)
        operation = cloud.store.get(KIND, scope, name) or operation
    if operation["status"] != "DONE":
        cloud.store.put(PENDING, "", name, pending)
    return operation


def open_(
    call: Call,
    operation_type: str,
    location: str,
    target: str,
    target_id: str,
    *,
    group: str = "",
    extra: Resource | None = None,
) -> Resource:
    """Store a running operation; the caller ends it (see `end`)."""
    cloud = call.cloud
    operation = _new(cloud, call.project, location, operation_type, target)
    operation |= {"targetId": target_id, "user": call.identity.email, **(extra or {})}
    if group:
        operation["operationGroupId"] = group
    if call.query.get("requestId"):
        operation["clientOperationId"] = call.query["requestId"]
    cloud.store.put(KIND, f"{call.project}/{location}", operation["name"], operation)
    return operation


def of_the_system(
    cloud: Cloud,
    project: str,
    location: str,
    operation_type: str,
    *,
    target: str,
    target_id: str,
) -> None:
    """Record an action of Compute Engine itself, such as a preemption; named systemevent-..."""
    operation = _new(cloud, project, location, operation_type, target, prefix="systemevent")
    operation |= {"targetId": target_id, "user": "system"}
    cloud.store.put(KIND, f"{project}/{location}", operation["name"], operation)
    end(cloud, f"{project}/{location}", operation["name"], None)


def _new(
    cloud: Cloud,
    project: str,
    location: str,
    operation_type: str,
    target: str,
    *,
    prefix: str = "operation",
) -> Resource:
    now = cloud.clock.now()
    unique = secrets.token_hex(15)
    name = f"{prefix}-{int(now * 1000)}-{unique[:13]}-{unique[13:21]}-{unique[21:29]}"
    stamp = timestamp(now)
    operation: Resource = {
        "kind": "compute#operation",
        "id": new_id(),
        "name": name,
        "operationType": operation_type,
        "targetLink": LINK + target,
        "status": "RUNNING",
        "progress": 0,
        "insertTime": stamp,
        "startTime": stamp,
        "selfLink": f"{LINK}projects/{project}/{location}/operations/{name}",
    }
    where, _, place = location.partition("/")
    if place:
        operation[where.removesuffix("s")] = f"{LINK}projects/{project}/{location}"
    return operation


def latency_seconds(cloud: Cloud, method: str) -> float:
    """How long operations of a method take: the first pattern of the settings that fits."""
    for pattern, seconds in cloud.settings.latency_seconds.items():
        if fnmatchcase(method, pattern):
            return seconds
    return 0


def resume(cloud: Cloud) -> None:
    """Resume the operations that were running when fakecloud ended."""
    for _, name, pending in list(cloud.store.all(PENDING)):
        wait = max(0.0, pending["due"] - cloud.clock.now())
        cloud.later(wait, partial(_run, cloud, name, pending))


def repeated(call: Call) -> Resource | None:
    """The operation that an earlier call with the same requestId started."""
    request_id = call.query.get("requestId")
    if not request_id:
        return None
    if not request_id.replace("-", "").strip("0"):
        raise invalid(f"Invalid value for field 'requestId': '{request_id}'. Must be a valid UUID")
    earlier = call.cloud.store.get(REQUESTS, f"{call.project}/{call.method}", request_id)
    return call.cloud.store.get(KIND, earlier["scope"], earlier["name"]) if earlier else None


def _run(cloud: Cloud, name: str, pending: Resource) -> None:
    """Do an operation's work, or fail it with an injected fault."""
    task = WORK[pending["work"]]
    arguments: dict[str, Any] = pending["arguments"]

    def finish(error: OperationError | None) -> None:
        if error and task.undo:
            task.undo(cloud, arguments)
        end(cloud, pending["scope"], name, error)

    error = cloud.faults.operation_error(pending["method"])
    if error:
        finish(error)
    else:
        task.run(cloud, {**arguments, "operation": name}, finish)


def end(cloud: Cloud, scope: str, name: str, error: OperationError | None) -> None:
    """Mark an operation as done, and answer the calls that wait for it."""
    operation = cloud.store.get(KIND, scope, name)
    if operation is None:
        raise KeyError(name)
    operation = {
        **operation,
        "status": "DONE",
        "progress": 100,
        "endTime": timestamp(cloud.clock.now()),
    }
    if error:
        operation |= {
            "error": {"errors": [{"code": error.code, "message": error.message}]},
            "httpErrorStatusCode": error.status,
            "httpErrorMessage": error.http_message,
        }
    cloud.store.put(KIND, scope, name, operation)
    if cloud.store.get(PENDING, "", name) is not None:
        cloud.store.delete(PENDING, "", name)
    for waiting in cloud.waiting.pop(name, []):
        waiting.resolve(operation)
