"""Many instances by one call.

https://cloud.google.com/compute/docs/instances/multiple/about-bulk-creation: one operation for the
call and one for each instance, with the same operationGroupId. If fewer than minCount can be
created, all are deleted. Limits and errors:
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation
"""

import re
import uuid
from collections.abc import Iterable
from functools import partial

from muster_sandbox.fakecloud import operations
from muster_sandbox.fakecloud.api_errors import ApiError, already_exists, invalid, rate_limit
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.operations import Finish, work
from muster_sandbox.fakecloud.places import REGIONS
from muster_sandbox.fakecloud.services.compute import build, capacity, lifecycle, resources
from muster_sandbox.fakecloud.services.compute.build import INSTANCE
from muster_sandbox.fakecloud.services.compute.resources import Reference

MOST = 5000
AT_ONCE = 10
HASHES = re.compile("#+")


@handler("compute.instances.bulkInsert")
def bulk_insert(call: Call) -> Resource:
    """Make instances in one zone."""
    return _begin(call, call.parameters["zone"], resources.location(call))


@handler("compute.regionInstances.bulkInsert")
def regional_bulk_insert(call: Call) -> Resource:
    """Make instances in the zone of the region that has the most capacity for them."""
    place = resources.location(call)
    body = resources.body(call)
    shape = body.get("locationPolicy", {}).get("targetShape", "ANY_SINGLE_ZONE")
    if shape != "ANY_SINGLE_ZONE":
        raise invalid(f"fakecloud has no targetShape {shape}, only ANY_SINGLE_ZONE")
    zone = _roomiest(call, body)
    call.parameters["zone"] = zone
    return _begin(call, zone, place)


def _roomiest(call: Call, body: Resource) -> str:
    allowed = body.get("locationPolicy", {}).get("locations", {})
    zones = [
        zone
        for zone in REGIONS[call.parameters["region"]]
        if allowed.get(f"zones/{zone}", {}).get("preference", "ALLOW") == "ALLOW"
        and (f"zones/{zone}" in allowed or not _any_allowed(allowed))
    ]
    if not zones:
        raise invalid("Invalid value for field 'locationPolicy': no zone is allowed.")
    machine_type = _properties(call, body).get("machineType", "").rpartition("/")[2]
    cloud = call.cloud

    def room(zone: str) -> float:
        most = cloud.settings.capacity.get((zone, machine_type))
        return float("inf") if most is None else most - cloud.usage.running[zone, machine_type]

    return max(zones, key=room)


def _any_allowed(locations: Resource) -> bool:
    return any(location.get("preference") == "ALLOW" for location in locations.values())


def _begin(call: Call, zone: str, place: str) -> Resource:
    cloud = call.cloud
    _limit_rate(cloud)
    body = resources.body(call)
    properties = _properties(call, body)
    names = _names(call, body, zone)
    least = int(body.get("minCount", len(names)))
    for name in names:
        target = Reference(call.project, f"zones/{zone}", INSTANCE.collection, name)
        if target.find(cloud) is not None:
            raise already_exists(target.path)
    group = str(uuid.uuid4())
    children: list[Resource] = []
    try:
        for name in names:
            children.append(_child(call, {**properties, "name": name}, zone, group))
    except ApiError:
        # An invalid body fails with the first instance; a subnet may be full only after some.
        _take_back(cloud, {"children": children})
        raise
    status = {"targetVmCount": len(names), "status": "CREATING"}
    project = f"projects/{call.project}"
    return operations.begin(
        call,
        "bulkInsert",
        place,
        f"{project}/{place}/instances" if place.startswith("zones/") else f"{project}/{place}",
        "0",
        work="bulk_insert",
        arguments={"children": children, "least": least, "zone": zone, "place": place},
        group=group,
        extra=_progress(zone, status),
    )


def _child(call: Call, body: Resource, zone: str, group: str) -> Resource:
    """Store one instance and its operation; the arguments of its work."""
    built = build.build(call, body)
    problem = capacity.shortage(call.cloud, built.instance)
    build.store(call, built)
    operation = operations.open_(
        call, "insert", f"zones/{zone}", built.target.path, built.instance["id"], group=group
    )
    return {**lifecycle.arguments_of(built, problem), "child": operation["name"]}


def _limit_rate(cloud: Cloud) -> None:
    """403 for more than 20 calls in a second, or more than 10 operations that haven't ended."""
    now = cloud.clock.now()
    calls = cloud.bulk_calls
    if len(calls) == calls.maxlen and now - calls[0] < 1:
        raise rate_limit("Rate Limit Exceeded: more than 20 bulk creations per second")
    pending = cloud.store.all(operations.PENDING)
    if sum(operation["work"] == "bulk_insert" for _, _, operation in pending) >= AT_ONCE:
        raise rate_limit("Rate Limit Exceeded: too many bulk operations are running")
    calls.append(now)


def _properties(call: Call, body: Resource) -> Resource:
    template = body.get("sourceInstanceTemplate")
    given: Resource = body.get("instanceProperties", {})
    if bool(template) == bool(given) and not template:
        raise invalid(
            "Invalid value for field 'instanceProperties': ''. Either instanceProperties or "
            "sourceInstanceTemplate must be set."
        )
    properties = build.from_template(call, template, given) if template else given
    for number, disk in enumerate(properties.get("disks", [])):
        if "sourceSnapshot" in disk.get("initializeParams", {}):
            raise invalid(
                f"Invalid value for field 'instanceProperties.disks[{number}]': bulk creation "
                "doesn't support disks from snapshots."
            )
    return properties


def _names(call: Call, body: Resource, zone: str) -> list[str]:
    per_instance: Resource = body.get("perInstanceProperties", {})
    count = int(body.get("count", len(per_instance)))
    if not 1 <= count <= MOST:
        raise invalid(f"Invalid value for field 'count': '{count}'. Must be between 1 and {MOST}.")
    pattern: str = body.get("namePattern", "")
    if bool(pattern) == bool(per_instance):
        raise invalid(
            "Invalid value for field 'namePattern': exactly one of namePattern and "
            "perInstanceProperties must be set."
        )
    if per_instance:
        if len(per_instance) != count:
            raise invalid(
                f"Invalid value for field 'count': '{count}'. It must be the number of "
                "perInstanceProperties."
            )
        return [properties.get("name", key) for key, properties in per_instance.items()]
    present = call.cloud.store.within(INSTANCE.store, f"{call.project}/zones/{zone}")
    return _from_pattern(pattern, count, present)


def _from_pattern(pattern: str, count: int, present: Iterable[str]) -> list[str]:
    """inst-### -> inst-001...; numbers continue after the largest that exists."""
    hashes = HASHES.findall(pattern)
    if len(hashes) != 1:
        raise invalid(
            f"Invalid value for field 'namePattern': '{pattern}'. It must have one sequence of #."
        )
    before, after = pattern.split(hashes[0])
    width = len(hashes[0])
    like = re.compile(f"{re.escape(before)}([0-9]{{{width}}}){re.escape(after)}")
    largest = max((int(match[1]) for match in map(like.fullmatch, present) if match), default=0)
    return [f"{before}{largest + n:0{width}}{after}" for n in range(1, count + 1)]


def _progress(zone: str, status: Resource) -> Resource:
    return {
        "instancesBulkInsertOperationMetadata": {"perLocationStatus": {f"zones/{zone}": status}}
    }


def _take_back(cloud: Cloud, arguments: Resource) -> None:
    """Undo a bulk operation that failed as a whole: its instances and operations are removed.

    Where instances have come up or failed one by one, their own operations show it.
    """
    for child in arguments["children"]:
        scope = f"{child['project']}/{child['location']}"
        operation = cloud.store.get(operations.KIND, scope, child["child"])
        if operation is not None and operation["status"] != "DONE":
            cloud.store.delete(operations.KIND, scope, child["child"])
            lifecycle.take_back(cloud, child)


@work("bulk_insert", undo=_take_back)
def _run(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    """Boot each instance; when all are up or have failed, compare their number with minCount."""
    children: list[Resource] = arguments["children"]
    _Bulk(cloud, arguments, finish).start(children)


class _Bulk:
    """The booting instances of one call."""

    def __init__(self, cloud: Cloud, arguments: Resource, finish: Finish) -> None:
        self.cloud = cloud
        self.arguments = arguments
        self.finish = finish
        self.waiting = len(arguments["children"])
        self.up: list[Resource] = []

    def start(self, children: list[Resource]) -> None:
        for child in children:
            error = lifecycle.decoded(child)
            if error:
                self.ended(child, error)
            else:
                target = resources.from_arguments(child)
                lifecycle.boot(self.cloud, target, partial(self.ended, child))

    def ended(self, child: Resource, error: OperationError | None) -> None:
        if error:
            lifecycle.take_back(self.cloud, child)
        else:
            self.up.append(child)
        self._end_child(child, error)
        self.waiting -= 1
        if not self.waiting:
            self._end()

    def _end_child(self, child: Resource, error: OperationError | None) -> None:
        scope = f"{child['project']}/{child['location']}"
        operations.end(self.cloud, scope, child["child"], error)

    def _end(self) -> None:
        wanted, created = len(self.arguments["children"]), len(self.up)
        least = self.arguments["least"]
        status: Resource = {
            "targetVmCount": wanted,
            "createdVmCount": created,
            "failedToCreateVmCount": wanted - created,
            "status": "DONE",
        }
        if created >= least:
            self._report(status, None)
            return
        error = OperationError(
            "VM_MIN_COUNT_NOT_REACHED",
            f"Requested minimum count of {least} VMs could not be created.",
            409,
            "CONFLICT",
        )
        status["deletedVmCount"] = created
        left = created

        def erased() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._report(status, error)

        for child in self.up:
            lifecycle.erase(self.cloud, resources.from_arguments(child), erased)
        if not created:
            self._report(status, error)

    def _report(self, status: Resource, error: OperationError | None) -> None:
        project = self.arguments["children"][0]["project"]
        scope = f"{project}/{self.arguments['place']}"
        name = self.arguments["operation"]
        operation = self.cloud.store.get(operations.KIND, scope, name)
        if operation is None:
            raise KeyError(name)
        reported = {**operation, **_progress(self.arguments["zone"], status)}
        self.cloud.store.put(operations.KIND, scope, name, reported)
        self.finish(error)
