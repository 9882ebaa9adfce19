"""The lifecycle of a program with the real engine and state file, against fakecloud.

Only a run with PROVIDER=real proves anything about Google's own provider.
"""

import time
from pathlib import Path

import httpx
import pytest
from clusterkit import PROJECT, ZONE, names
from stackkit import Process, Stack, texts_of_nothing

from muster_sandbox.engine.home import Provider
from muster_sandbox.fakecloud.server import Server

pytestmark = pytest.mark.proof(
    "three minutes; `tests/cloud/cloudcluster` runs the engine in `make test`"
)

EVERYTHING = ["booted", "disk", "machine", "network", "subnetwork"]
MACHINE = "projects/demo-project/zones/europe-west4-a/instances/t-controller"


def machine_of(outside: httpx.Client) -> dict:
    """The program's instance as the cloud has it."""
    answer = outside.get(f"{ZONE}/instances/t-controller")
    assert answer.status_code == 200, answer.text
    return answer.json()


def machines(outside: httpx.Client) -> list[str]:
    """Names of all instances."""
    return names(outside, f"{ZONE}/instances")


def test_up_makes_all_and_a_second_one_changes_nothing(stack: Stack, outside: httpx.Client):
    preview = stack.preview()
    assert preview.named("create") == EVERYTHING
    assert machines(outside) == []

    made = stack.up()
    assert made.named("create") == EVERYTHING
    machine = machine_of(outside)
    assert machine["status"] == "RUNNING"
    assert machine["labels"] == {"cluster": "t", "goog-pulumi-provisioned": "true"}
    outputs = stack.outputs()
    assert outputs["address"] == machine["networkInterfaces"][0]["networkIP"]
    assert outputs["sentence"] == f"t-controller is at {outputs['address']}"

    assert stack.up().changes == []
    assert stack.preview().changes == []
    assert texts_of_nothing(stack.export()) == []


def test_an_update_changes_in_place_what_can_be(stack: Stack, outside: httpx.Client):
    stack.up()
    before = machine_of(outside)
    wanted = {"machine_type": "n1-standard-4", "boot_gb": "20", "disk_gb": "30"}
    stack.configure({**wanted, "range": "10.64.0.0/19", "mtu": "1460"})

    preview = stack.preview()
    changed = ["disk", "machine", "network", "subnetwork"]
    assert preview.changes == [f"update {name}" for name in changed]

    assert stack.up().changes == preview.changes
    after = machine_of(outside)
    assert after["id"] == before["id"]
    assert after["machineType"].endswith("/n1-standard-4")
    assert after["status"] == "RUNNING"
    assert outside.get(f"{ZONE}/disks/t-controller").json()["sizeGb"] == "20"
    assert outside.get(f"{PROJECT}/global/networks/t-net").json()["mtu"] == 1460
    assert stack.up().changes == []


def test_a_smaller_boot_disk_is_refused_in_the_clouds_words(stack: Stack, outside: httpx.Client):
    stack.configure({"boot_gb": "20"})
    stack.up()
    before = machine_of(outside)
    stack.configure({"boot_gb": "10"})
    failed = stack.up(fails=True)
    assert failed.failed == ["machine"]
    assert "New disk size must be larger than existing disk size, 20 GB" in failed.output
    assert machine_of(outside)["id"] == before["id"]


def test_a_replacement_is_shown_before_and_keeps_the_disk(stack: Stack, outside: httpx.Client):
    stack.up()
    before = machine_of(outside)
    stack.configure({"script": "#!/bin/sh\necho booted\n"})

    preview = stack.preview()
    assert preview.named("replace") == ["machine"]
    assert "disk" in preview.named("same")

    done = stack.up()
    # Its name is the program's own, so the old one goes first.
    order = [step.op for step in done.steps if step.name == "machine"]
    assert order.index("delete-replaced") < order.index("create-replacement")
    after = machine_of(outside)
    assert after["id"] != before["id"]
    sources = [[disk["source"] for disk in item["disks"][1:]] for item in (before, after)]
    assert sources[0] == sources[1] != []
    assert stack.up().changes == []


def test_what_stands_on_a_replaced_network_is_replaced_with_it(stack: Stack, outside: httpx.Client):
    stack.up()
    disk = outside.get(f"{ZONE}/disks/t-state").json()["id"]
    stack.configure({"description": "another"})
    assert stack.preview().named("replace") == ["machine", "network", "subnetwork"]
    stack.up()
    network = outside.get(f"{PROJECT}/global/networks/t-net").json()
    assert network["description"] == "another"
    assert machine_of(outside)["networkInterfaces"][0]["network"] == network["selfLink"]
    assert outside.get(f"{ZONE}/disks/t-state").json()["id"] == disk
    assert stack.up().changes == []


def test_a_new_digest_replaces_the_dynamic_resource(stack: Stack):
    stack.up()
    stack.configure({"digest": "two"})
    done = stack.up()
    assert done.named("create-replacement") == ["booted"]
    order = [step.op for step in done.steps if step.name == "booted"]
    assert order.index("create-replacement") < order.index("delete-replaced")
    assert "waiting for two" in done.output
    assert stack.outputs()["booted"] == "two"


def test_refresh_finds_what_was_changed_outside(stack: Stack, outside: httpx.Client):
    stack.up()
    assert stack.refresh().changes == []

    machine = machine_of(outside)
    labels = {**machine["labels"], "cluster": "somebody-elses"}
    body = {"labels": labels, "labelFingerprint": machine["labelFingerprint"]}
    assert outside.post(f"{ZONE}/instances/t-controller/setLabels", json=body).is_success
    assert stack.up().changes == [], "without a refresh nothing is noticed"
    assert stack.refresh().changes == ["update machine"]
    assert stack.up().changes == ["update machine"]
    assert machine_of(outside)["labels"]["cluster"] == "t"


def test_what_was_deleted_outside_is_made_again(stack: Stack, outside: httpx.Client):
    stack.up()
    assert outside.delete(f"{ZONE}/instances/t-controller").is_success
    assert machines(outside) == []
    assert stack.refresh().changes == ["delete machine"]
    assert "machine" in stack.up().named("create")
    assert machine_of(outside)["status"] == "RUNNING"


def test_a_refused_resource_fails_in_the_clouds_words_and_the_rest_stays(
    stack: Stack, fakecloud: Server
):
    quotas = fakecloud.cloud.settings.quotas
    fakecloud.do(lambda _: quotas.update({"europe-west4": {"CPUS": 1}}))
    failed = stack.up(fails=True)
    assert failed.failed == ["machine"]
    assert "Quota 'CPUS' exceeded" in failed.output
    assert {"network", "subnetwork", "disk"} <= stack.resources().keys()
    assert "machine" not in stack.resources()

    fakecloud.do(lambda _: quotas.clear())
    assert stack.up().named("create") == ["booted", "machine"]
    assert stack.up().changes == []


def test_an_interrupted_up_ends_what_it_began_and_the_next_one_goes_on(
    stack: Stack, tmp_path: Path, outside: httpx.Client
):
    gate = tmp_path / "gate"
    stack.environment["WAIT_FILE"] = str(gate)
    with stack.running("up", "--yes", "--skip-preview") as process:
        process.wait_for(lambda: "waiting for one" in process.printed())
        process.interrupt()
        process.wait_for(lambda: "cancel" in process.printed().lower())
        gate.touch()
        process.wait()
    assert process.result().code != 0
    assert stack.pending() == []

    assert stack.up().named("create") == []
    assert stack.up().changes == []
    assert machines(outside) == ["t-controller"]


def test_a_killed_engine_leaves_no_plugin_and_a_stack_that_can_be_freed(
    stack: Stack, provider: Provider, fakecloud: Server, outside: httpx.Client
):
    fakecloud.do(lambda cloud: cloud.settings.latency_seconds.update({"*.instances.insert": 3}))
    with stack.running("up", "--yes", "--skip-preview") as process:
        process.wait_for(lambda: machines(outside) == ["t-controller"])
        process.kill()
        if not provider.real:  # Google's own stays: nothing tells it that its engine is gone
            await_end(process)
    locked = stack.up(fails=True)
    assert "locked" in locked.output
    assert [item["type"] for item in stack.pending()] == ["creating"]

    stack.recover({"machine": MACHINE})
    assert stack.pending() == []
    assert stack.up().named("create") == ["booted"]
    assert stack.up().changes == []
    assert machines(outside) == ["t-controller"]


def await_end(process: Process) -> None:
    """Wait until no process of a killed engine is left."""
    until = time.monotonic() + 20
    while left := process.session():
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.1)


def test_destroy_leaves_nothing_and_up_works_again(stack: Stack, outside: httpx.Client):
    stack.up()
    assert stack.destroy().named("delete") == EVERYTHING
    places = [f"{ZONE}/instances", f"{ZONE}/disks", f"{PROJECT}/global/networks"]
    for path in [*places, f"{PROJECT}/regions/europe-west4/subnetworks"]:
        assert names(outside, path) == [], path
    assert stack.resources() == {}
    assert stack.up().named("create") == EVERYTHING


def test_a_secret_of_the_configuration_is_not_in_the_state(stack: Stack, outside: httpx.Client):
    stack.configure({"token": "planted-9f3b"}, secret=True)
    run = stack.up()
    items = machine_of(outside)["metadata"]["items"]
    assert {"key": "token", "value": "planted-9f3b"} in items
    assert "planted-9f3b" not in run.output
    assert "planted-9f3b" not in str(stack.export())
    assert stack.up().changes == []


def test_a_wrong_key_in_a_dictionary_is_refused_before_anything_is_made(
    stack: Stack, outside: httpx.Client
):
    program = stack.program / "__main__.py"
    program.write_text(program.read_text().replace('"initialize_params"', '"initialise_params"'))
    failed = stack.up(fails=True)
    assert "initialiseParams" in failed.output or "initialise_params" in failed.output
    assert machines(outside) == []


def test_the_stand_in_says_what_it_does_not_map(stack: Stack, provider: Provider):
    if provider.real:
        pytest.skip("only the stand-in says so")
    program = stack.program / "__main__.py"
    program.write_text(
        program.read_text().replace("auto_create_subnetworks=False", "network_profile='x'")
    )
    assert "maps no input networkProfile" in stack.preview(fails=True).output


def test_two_ups_at_once_are_refused(stack: Stack, tmp_path: Path):
    gate = tmp_path / "gate"
    stack.environment["WAIT_FILE"] = str(gate)
    with stack.running("up", "--yes", "--skip-preview") as process:
        process.wait_for(lambda: "waiting for one" in process.printed())
        second = stack.up(fails=True)
        assert "locked" in second.output
        gate.touch()
        process.wait()
    assert process.result().code == 0
