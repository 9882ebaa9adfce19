"""The lifecycle of an instance: start, stop, preemption, deletion.

https://cloud.google.com/compute/docs/instances/instance-lifecycle
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from muster_sandbox.fakecloud import operations
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.backends import STOP_SECONDS
from muster_sandbox.fakecloud.call import Call, handler, prepare
from muster_sandbox.fakecloud.clock import timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.operations import Finish, begin, work
from muster_sandbox.fakecloud.services.compute import build, capacity, disks, resources
from muster_sandbox.fakecloud.services.compute.build import INSTANCE, Built
from muster_sandbox.fakecloud.services.compute.resources import Reference

GUEST_ATTRIBUTES = "compute.guestAttributes"


@handler("compute.instances.insert")
def insert(call: Call) -> Resource:
    """Make an instance and boot it. If it can't run, remove it: the operation fails."""
    body = resources.body(call)
    template = call.query.get("sourceInstanceTemplate")
    if template:
        body = build.from_template(call, template, body)
    built = build.build(call, body)
    problem = capacity.shortage(call.cloud, built.instance)
    build.store(call, built)
    return begin(
        call,
        "insert",
        built.target.location,
        built.target.path,
        built.instance["id"],
        work="insert_instance",
        arguments=arguments_of(built, problem),
    )


def arguments_of(built: Built, problem: OperationError | None) -> Resource:
    """Return the arguments of the work that inserts an instance."""
    return {
        **resources.as_arguments(built.target, built.instance),
        "error": encoded(problem),
        "new_disks": [where.link for where, _ in built.new_disks],
    }


def encoded(error: OperationError | None) -> list[object] | None:
    """Return an error as an argument of work: arguments must be JSON."""
    return [error.code, error.message, error.status, error.http_message] if error else None


def decoded(arguments: Resource) -> OperationError | None:
    """Return the error that `encoded` has encoded."""
    return OperationError(*arguments["error"]) if arguments.get("error") else None


def take_back(cloud: Cloud, arguments: Resource) -> None:
    """Undo an insert: remove the instance and its new disks, and detach the others."""
    remove(cloud, resources.from_arguments(arguments), new_disks=arguments["new_disks"])


@work("insert_instance", undo=take_back)
def _insert(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    error = decoded(arguments)
    if error:
        finish(error)
    else:
        boot(cloud, resources.from_arguments(arguments), finish)


def boot(cloud: Cloud, target: Reference, finish: Finish) -> None:
    """Let the backend start the machine; then the status is RUNNING.

    If another call stops or deletes the instance already, change nothing: that call came later.
    """
    instance = target.find(cloud)
    if instance is None or instance["status"] == "STOPPING":
        finish(None)
        return
    set_status(cloud, target, "STAGING")

    def done(problem: str) -> None:
        if problem:
            finish(OperationError("INTERNAL_ERROR", problem, 500, "INTERNAL ERROR"))
            return
        present = target.find(cloud)
        # If a call deleted or stopped it while it booted, that call came later and wins.
        if present is not None and present["status"] == "STAGING":
            started = {**present, "status": "RUNNING"}
            resources.put(cloud, target, started)
            _expire_later(cloud, target, started)
        finish(None)

    cloud.backend.start(instance, done)


def set_status(cloud: Cloud, target: Reference, status: str) -> None:
    """Change the status of an instance, if it still exists."""
    instance = target.find(cloud)
    if instance is not None:
        resources.put(cloud, target, {**instance, "status": status})


def remove(cloud: Cloud, target: Reference, new_disks: Collection[str] = ()) -> None:
    """Remove the record of an instance, its disks with autoDelete, and `new_disks` (links)."""
    instance = target.find(cloud)
    if instance is None:
        return
    resources.drop(cloud, target)
    for disk in instance["disks"]:
        if "source" not in disk:
            continue
        disks.attached(cloud, disk["source"], target.link, now=False)
        if disk["autoDelete"] or disk["source"] in new_disks:
            disks.remove(cloud, disk["source"])
    attributes = f"{target.scope}/{target.name}"
    for name in list(cloud.store.within(GUEST_ATTRIBUTES, attributes)):
        cloud.store.delete(GUEST_ATTRIBUTES, attributes, name)


@handler("compute.instances.delete")
def delete(call: Call) -> Resource:
    """Power an instance off. Delete it, and also its disks with autoDelete."""
    target, instance = resources.existing(call, INSTANCE)
    if instance["deletionProtection"]:
        raise invalid(
            "Invalid value for field 'resource.deletionProtection': 'true'. Resource cannot be "
            "deleted if it's protected against deletion."
        )
    return _begin(call, target, instance, kind="delete", task="delete_instance", status="STOPPING")


def _begin(
    call: Call, target: Reference, instance: Resource, *, kind: str, task: str, status: str
) -> Resource:
    resources.put(call.cloud, target, {**instance, "status": status})
    return begin(
        call,
        kind,
        target.location,
        target.path,
        instance["id"],
        work=task,
        arguments=resources.as_arguments(target, instance),
    )


@work("delete_instance")
def _delete(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    erase(cloud, resources.from_arguments(arguments), lambda: finish(None))


def erase(cloud: Cloud, target: Reference, done: Callable[[], None]) -> None:
    """Let the backend remove the machine, then remove the record."""
    instance = target.find(cloud)
    if instance is None:
        done()
        return

    def gone(_problem: str) -> None:
        cloud.preempted.discard(target.link)
        remove(cloud, target)
        done()

    cloud.backend.delete(instance, gone)


@handler("compute.instances.start")
def start(call: Call) -> Resource:
    """Boot an instance that is off; a running one stays as it is."""
    target, instance = resources.existing(call, INSTANCE)
    if instance["status"] != "TERMINATED":
        return begin(call, "start", target.location, target.path, instance["id"])
    problem = capacity.shortage(call.cloud, instance)
    stamp = timestamp(call.cloud.clock.now())
    resources.put(
        call.cloud, target, {**instance, "status": "PROVISIONING", "lastStartTimestamp": stamp}
    )
    return begin(
        call,
        "start",
        target.location,
        target.path,
        instance["id"],
        work="start_instance",
        arguments={**resources.as_arguments(target, instance), "error": encoded(problem)},
    )


def _off_again(cloud: Cloud, arguments: Resource) -> None:
    set_status(cloud, resources.from_arguments(arguments), "TERMINATED")


@work("start_instance", undo=_off_again)
def _start(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    _insert(cloud, arguments, finish)


@handler("compute.instances.stop")
def stop(call: Call) -> Resource:
    """Power an instance off; its disks and addresses stay."""
    target, instance = resources.existing(call, INSTANCE)
    if instance["status"] == "TERMINATED":
        return begin(call, "stop", target.location, target.path, instance["id"])
    return _begin(call, target, instance, kind="stop", task="stop_instance", status="STOPPING")


@work("stop_instance")
def _stop(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    power_off(cloud, resources.from_arguments(arguments), lambda: finish(None))


def power_off(
    cloud: Cloud, target: Reference, done: Callable[[], None], seconds: int = STOP_SECONDS
) -> None:
    """Let the backend stop the machine within `seconds`; then the status is TERMINATED."""
    instance = target.find(cloud)
    if instance is None:
        done()
        return

    def off(_problem: str) -> None:
        cloud.preempted.discard(target.link)
        stopped(cloud, target)
        done()

    cloud.backend.stop(instance, off, seconds)


def stopped(cloud: Cloud, target: Reference) -> None:
    """Record that a machine is off, after a call or its own `poweroff`."""
    instance = target.find(cloud)
    if instance is not None:
        stamp = timestamp(cloud.clock.now())
        resources.put(
            cloud, target, {**instance, "status": "TERMINATED", "lastStopTimestamp": stamp}
        )


def powered_off(cloud: Cloud, instance: Resource) -> None:
    """Record that a machine has powered itself off, if no later call is changing it."""
    target = resources.from_link(instance["selfLink"])
    present = target.find(cloud)
    if present is not None and present["id"] == instance["id"] and present["status"] == "RUNNING":
        stopped(cloud, target)


def reported(cloud: Cloud, instance: Resource) -> Mapping[str, Resource]:
    """Return the guest attributes that an instance has set."""
    target = resources.from_link(instance["selfLink"])
    return cloud.store.within(GUEST_ATTRIBUTES, f"{target.scope}/{target.name}")


def report(cloud: Cloud, instance: Resource, attributes: Mapping[str, Resource]) -> None:
    """Set guest attributes of an instance, if it still exists."""
    target = resources.from_link(instance["selfLink"])
    present = target.find(cloud)
    if present is not None and present["id"] == instance["id"]:
        for name, value in attributes.items():
            cloud.store.put(GUEST_ATTRIBUTES, f"{target.scope}/{target.name}", name, value)


@handler("compute.instances.reset")
def reset(call: Call) -> Resource:
    """Reset an instance: stop its machine, and start it again immediately."""
    target, instance = resources.existing(call, INSTANCE)
    if instance["status"] != "RUNNING":
        raise ApiError(400, "resourceNotReady", f"The resource '{target.path}' is not ready")
    return begin(
        call,
        "reset",
        target.location,
        target.path,
        instance["id"],
        work="reset_instance",
        arguments=resources.as_arguments(target, instance),
    )


@work("reset_instance")
def _reset(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    target = resources.from_arguments(arguments)
    power_off(cloud, target, lambda: boot(cloud, target, finish))


@handler("compute.instances.simulateMaintenanceEvent")
def simulate_maintenance(call: Call) -> Resource:
    """Preempt a spot instance. All others move to another host, without an effect."""
    target, instance = resources.existing(call, INSTANCE)
    spot = instance["scheduling"]["preemptible"]
    return begin(
        call,
        "simulateMaintenanceEvent",
        target.location,
        target.path,
        instance["id"],
        work="preempt_instance" if spot else "nothing",
        arguments=resources.as_arguments(target, instance),
    )


@work("preempt_instance")
def _preempt(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    preempt(cloud, resources.from_arguments(arguments), lambda: finish(None))


def preempt(cloud: Cloud, target: Reference, done: Callable[[], None] = lambda: None) -> None:
    """Preempt a spot instance: set its metadata, press its power button, and stop it soon.

    https://cloud.google.com/compute/docs/instances/spot#preemption-process. The list of the
    project's operations shows the preemption too.
    """
    instance = target.find(cloud)
    if instance is None:
        done()
        return
    operations.of_the_system(
        cloud,
        target.project,
        target.location,
        "compute.instances.preempted",
        target=target.path,
        target_id=instance["id"],
    )
    cloud.preempted.add(target.link)
    end(cloud, target, done, cloud.settings.preemption_seconds)
    cloud.notify(target.link)


def end(
    cloud: Cloud,
    target: Reference,
    done: Callable[[], None] = lambda: None,
    seconds: int = STOP_SECONDS,
) -> None:
    """Stop an instance within `seconds`; delete it if instanceTerminationAction says so."""
    instance = target.find(cloud)
    if instance is None:
        done()
        return
    set_status(cloud, target, "STOPPING")
    if instance["scheduling"].get("instanceTerminationAction") == "DELETE":
        cloud.backend.stop(instance, lambda _problem: erase(cloud, target, done), seconds)
    else:
        power_off(cloud, target, done, seconds)


def _expire_later(cloud: Cloud, target: Reference, instance: Resource) -> None:
    """End an instance after its scheduling.maxRunDuration.

    https://cloud.google.com/compute/docs/instances/limit-vm-runtime
    """
    duration = instance["scheduling"].get("maxRunDuration")
    if not duration:
        return

    def expire() -> None:
        present = target.find(cloud)
        # Do not end it if it was started again, or if it is a new one with the same name.
        if present is not None and present["status"] == "RUNNING":
            same = ("id", "lastStartTimestamp")
            if all(present[key] == instance[key] for key in same):
                end(cloud, target)

    due = datetime.fromisoformat(instance["lastStartTimestamp"]).timestamp()
    due += float(duration["seconds"])
    cloud.later(max(0.0, due - cloud.clock.now()), expire)


@prepare
def _expire_those_that_run(cloud: Cloud) -> None:
    for scope, name, instance in list(cloud.store.all(INSTANCE.store)):
        if instance["status"] == "RUNNING":
            project, _, where = scope.partition("/")
            _expire_later(cloud, Reference(project, where, INSTANCE.collection, name), instance)
