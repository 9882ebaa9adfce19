"""Muster's own program with the real engine: a cluster's lifecycle in fakecloud with fake guests.

Its VMs only report; tests/cloud has VMs that boot.
"""

import io
import itertools
import json
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from clusterkit import CLUSTER, PROJECT, ZONE, Definition, names
from fake_guests import Guests, Script
from stackkit import Run, Stack, texts_of_nothing

from muster import secrets
from muster_sandbox.fakecloud import Cloud
from muster_sandbox.fakecloud.server import Server

pytestmark = pytest.mark.proof(
    "five minutes; `tests/cloud/cloudcluster` runs the program in `make test`"
)


def vm(outside: httpx.Client, name: str) -> dict[str, Any]:
    """An instance, its metadata as a mapping."""
    instance = outside.get(f"{ZONE}/instances/{name}").json()
    return instance | {
        "metadata": {item["key"]: item["value"] for item in instance["metadata"]["items"]}
    }


def make_node(outside: httpx.Client, name: str) -> None:
    """Create a node as the controller does: by name, from its template."""
    node_set = name.split("-")[-2]
    query = {"sourceInstanceTemplate": templates(outside)[node_set]["choices"][0]["template"]}
    made = outside.post(f"{ZONE}/instances", json={"name": name}, params=query)
    assert made.is_success, made.text


def add_set(cluster: dict[str, Any]) -> None:
    cluster["nodes"]["big"] = {
        "machine_type": "c2-standard-4",
        "max_nodes": 4,
        "compact": True,
        "local_ssds": 2,
    }
    cluster["partitions"]["big"] = {"nodes": ["big"]}
    cluster["storage"]["apps"]["cached"] = True
    cluster["storage"]["cache"] = {"any_kernel": True}


def resize(cluster: dict[str, Any]) -> None:
    cluster["nodes"]["debug"] |= {"max_nodes": 20, "machine_type": "n1-standard-4"}


def remove_set(cluster: dict[str, Any]) -> None:
    del cluster["nodes"]["big"], cluster["partitions"]["big"]
    del cluster["storage"]["apps"]["cached"], cluster["storage"]["cache"]


def add_person(cluster: dict[str, Any]) -> None:
    cluster["users"]["people"]["bob"] = {"uid": 20002, "groups": ["ml-users"], "ssh_keys": []}
    cluster["partitions"]["debug"]["max_time"] = "01:00:00"


STAYING = {"Instance", "Disk", "Address", "Secret", "Network", "Subnetwork", "Image"}


def disturbed(run: Run) -> list[str]:
    """New, replaced and deleted controllers, login nodes, disks and resources that these need."""
    return [
        f"{step.op} {step.name}"
        for step in run.steps
        if step.kind.rpartition(":")[2] in STAYING
        and step.op not in {"same", "update", "refresh", "read"}
    ]


def test_up_makes_a_cluster_and_a_second_one_nothing(
    cluster: Stack, definition: Definition, outside: httpx.Client
):
    # As who moves a cluster from metal has them lying about.
    secrets.make(definition.inventory)
    assert "create" in cluster.preview().counts
    assert names(outside, f"{ZONE}/instances") == []
    made = cluster.up()
    assert f"{CLUSTER}-controller: Start slurmctld" in made.output
    assert names(outside, f"{ZONE}/instances") == [f"{CLUSTER}-controller", f"{CLUSTER}-login-0"]
    (image,) = names(outside, f"{PROJECT}/global/images")
    assert image.startswith(f"{CLUSTER}-")
    assert texts_of_nothing(cluster.export()) == []
    made_secrets = yaml.safe_load(secrets.path_of(definition.inventory).read_text())
    reads_no_secret(cluster, outside, list(made_secrets["secrets"].values()))
    parents_are_components(cluster)

    outputs = cluster.outputs()
    controller = vm(outside, f"{CLUSTER}-controller")
    address = controller["networkInterfaces"][0]["networkIP"]
    assert outputs == {
        "addresses": {f"{CLUSTER}-controller": address},
        "cluster": CLUSTER,
        "controller": f"{CLUSTER}-controller",
        "logins": [f"{CLUSTER}-login-0"],
        "project": "demo-project",
        "zone": "europe-west4-a",
    }
    assert json.loads(controller["metadata"]["muster-hosts"]) == outputs["addresses"]
    assert cluster.up().changes == []
    assert cluster.refresh().changes == []


def reads_no_secret(cluster: Stack, outside: httpx.Client, values: list[str]) -> None:
    """The bucket, the metadata and the state contain no secret of the inventory."""
    bucket = f"/storage/v1/b/demo-project-{CLUSTER}-muster/o"
    texts = [
        json.dumps(cluster.export()).encode(),
        outside.get(f"{ZONE}/instances").content,
        outside.get(f"{PROJECT}/global/instanceTemplates").content,
    ]
    for stored in outside.get(bucket).json()["items"]:
        got = outside.get(f"{bucket}/{quote(stored['name'], safe='')}", params={"alt": "media"})
        with tarfile.open(fileobj=io.BytesIO(got.content)) as archive:
            texts += [member.read() for entry in archive if (member := archive.extractfile(entry))]
    everything = b"\0".join(texts)
    assert b"uid: 20001" in everything, "what the inventory says of people is there to be found"
    assert len(values) == len(secrets.MAKERS)
    for value in values:
        forms = [value.encode(), b64encode(value.encode()).rstrip(b"=")]
        if len(value) > secrets.PASSWORD_CHARACTERS:
            forms.append(b64decode(value))  # the munge key itself
        assert not any(form in everything for form in forms)


def test_on_day_two_what_runs_stays(cluster: Stack, definition: Definition, outside: httpx.Client):
    count = cluster.up().counts["create"]
    controller = vm(outside, f"{CLUSTER}-controller")
    old = templates(outside)["debug"]["choices"][0]["template"]

    definition.change(add_set)
    assert disturbed(cluster.preview()) == []
    added = cluster.up()
    assert disturbed(added) == []
    new_set = ["nodes-big", "nodes-big-sweeper", "nodes-big-template"]
    assert added.named("create") == [bundle_of(outside), *new_set]
    # The controller's rights name its sets.
    rights = ["rights-disks", "rights-nodes"]
    assert added.named("replace") == rights
    assert set(templates(outside)) == {"big", "debug"}
    link = templates(outside)["big"]["choices"][0]["template"]
    disks = outside.get(f"/compute/v1/{link}").json()["properties"]["disks"]
    assert [disk["type"] for disk in disks] == ["PERSISTENT", "SCRATCH", "SCRATCH"]
    assert cluster.up().changes == []

    for node in ("big-0", "debug-0"):
        make_node(outside, f"{CLUSTER}-{node}")
    definition.change(remove_set)
    definition.change(resize)
    resized = cluster.up()
    assert disturbed(resized) == []
    assert resized.named("replace") == ["nodes-debug-template", *rights]
    order = [step.op for step in resized.steps if step.name == "nodes-debug-template"]
    assert order.index("create-replacement") < order.index("delete-replaced")
    # The controller gets the new one before the old one is deleted, so it always has a template.
    whole = [(step.op, step.name) for step in resized.steps]
    notified = whole.index(("update", "controller"))
    assert notified < whole.index(("delete-replaced", "nodes-debug-template"))
    assert set(resized.named("delete")) > set(new_set)
    # The nodes of the removed set go, when the controller has applied the change.
    assert f"deleting the instance {CLUSTER}-big-0" in resized.output
    assert f"{CLUSTER}-big-0" not in names(outside, f"{ZONE}/instances")
    assert f"{CLUSTER}-debug-0" in names(outside, f"{ZONE}/instances")
    applied = whole.index(("update", "controller-configured"))
    assert applied < whole.index(("delete", "nodes-big-sweeper"))
    assert applied < whole.index(("delete-replaced", "rights-nodes"))
    new = templates(outside)["debug"]["choices"][0]["template"]
    assert new != old
    assert new.startswith(f"projects/demo-project/global/instanceTemplates/{CLUSTER}-debug-")

    definition.change(add_person)
    changed = cluster.up()
    assert disturbed(changed) == []
    assert set(changed.named("update")) == {
        "controller",
        "controller-configured",
        "login-0",
        "login-0-configured",
    }
    assert changed.named("create") == [bundle_of(outside)]
    assert len(changed.named("delete")) == 1
    assert vm(outside, f"{CLUSTER}-controller")["id"] == controller["id"]
    # 20 nodes where there were 10, and a person more: as many resources as before.
    assert len(changed.named("create", "same", "update")) == count
    assert cluster.up().changes == []


def attach_gpus(cluster: dict[str, Any]) -> None:
    cluster["nodes"]["debug"]["accelerators"] = {"type": "t4", "count": 2}
    cluster["nvidia"] = {}


def test_nodes_have_the_gpus_that_are_attached(
    cluster: Stack, definition: Definition, outside: httpx.Client
):
    definition.change(attach_gpus)
    cluster.up()
    choice = templates(outside)["debug"]["choices"][0]
    assert choice["gpus"] == "t4:2"
    made = outside.get(f"/compute/v1/{choice['template']}").json()["properties"]
    assert made["guestAccelerators"] == [
        {"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2}
    ]
    make_node(outside, f"{CLUSTER}-debug-0")
    (gpus,) = vm(outside, f"{CLUSTER}-debug-0")["guestAccelerators"]
    assert gpus["acceleratorType"].endswith("/acceleratorTypes/nvidia-tesla-t4")
    assert cluster.up().changes == []


def test_a_new_image_reaches_templates_and_recreated_machines(
    cluster: Stack, definition: Definition, outside: httpx.Client
):
    lists = {"iap_admins": ["user:eve@example.org"], "iap_users": ["user:ada@example.org"]}
    definition.change(lambda document: document["cloud"].update(lists))
    cluster.up()
    let_in = reaching(outside, "controller"), reaching(outside, "login-0")
    assert let_in == ({"user:eve@example.org"}, {"user:ada@example.org", "user:eve@example.org"})
    (old,) = names(outside, f"{PROJECT}/global/images")
    controller = vm(outside, f"{CLUSTER}-controller")
    disk = outside.get(f"{ZONE}/disks/{CLUSTER}-state").json()["id"]

    with (cluster.program.parent / "roles/slurmd/tasks/install.yml").open("a") as role:
        role.write("# changed\n")
    built = cluster.up()
    assert sorted(built.named("replace")) == ["image", "nodes-debug-template"]
    (changed,) = names(outside, f"{PROJECT}/global/images")
    # On request it is rebuilt although nothing has changed: for Debian's updates.
    updated = cluster.up("--replace", urn(cluster, "pulumi-python:dynamic/muster:Image"))
    assert sorted(updated.named("replace")) == ["image", "nodes-debug-template"]
    (image,) = names(outside, f"{PROJECT}/global/images")
    assert len({old, changed, image}) == 3
    assert vm(outside, f"{CLUSTER}-controller")["id"] == controller["id"]
    assert cluster.up().changes == []

    # On request the controller is recreated: from the new image, with its disk and address.
    done = cluster.up("--replace", urn(cluster, "gcp:compute/instance:Instance", "controller"))
    who = "controller-user:eve@example.org"
    assert done.named("replace") == ["controller", who, f"{who}-sees"]
    assert done.named("update") == ["controller-configured"]
    # Google forgets a VM's policy with the VM.
    assert (reaching(outside, "controller"), reaching(outside, "login-0")) == let_in
    new = vm(outside, f"{CLUSTER}-controller")
    assert new["id"] != controller["id"]
    assert (
        new["networkInterfaces"][0]["networkIP"] == controller["networkInterfaces"][0]["networkIP"]
    )
    boot = outside.get(f"{ZONE}/disks/{CLUSTER}-controller").json()
    assert boot["sourceImage"].endswith(image)
    state = outside.get(f"{ZONE}/disks/{CLUSTER}-state").json()
    assert state["id"] == disk
    assert [user.rpartition("/")[2] for user in state["users"]] == [f"{CLUSTER}-controller"]
    assert cluster.up().changes == []


def urn(cluster: Stack, kind: str, name: str = "") -> str:
    """What Pulumi calls a resource, the only one of its kind whose name ends so."""
    (text,) = (
        item["urn"]
        for item in cluster.export()["deployment"]["resources"]
        if item["type"] == kind and item["urn"].endswith(name)
    )
    return str(text)


def test_destroy_is_refused_and_then_leaves_nothing(
    cluster: Stack, outside: httpx.Client, contents: Callable[[], set[tuple[str, str]]]
):
    before = contents()
    count = cluster.up().counts["create"]
    # SLURM makes nodes, which no state knows.
    make_node(outside, f"{CLUSTER}-debug-0")
    make_node(outside, f"{CLUSTER}-debug-1")
    # As a person runs it, with a preview.
    refused = cluster.engine("destroy", "--yes", fails=True)
    assert "protected" in refused.output
    assert "state unprotect" in refused.output
    assert len(names(outside, f"{ZONE}/instances")) == 4, "nothing was deleted"

    cluster.command("state", "unprotect", "--all", "--yes", "--stack", CLUSTER)
    gone = cluster.destroy()
    assert f"deleting the instance {CLUSTER}-debug-1" in gone.output
    order = [step.name for step in gone.steps if step.op == "delete"]
    wanted = ["controller", "image", "sweeper", "network-subnet", "network"]
    for first, then in itertools.pairwise(wanted):
        assert order.index(first) < order.index(then), order
    assert order.index("controller") < order.index("nodes-debug-sweeper")
    assert order.index("login-0") < order.index("sweeper")
    assert contents() - before == set()
    assert cluster.resources() == {}

    # The roles' ids stay taken; those of another claim are others.
    assert cluster.up().counts["create"] == count


def reaching(outside: httpx.Client, host: str) -> set[str]:
    """Members that may reach a VM through IAP and may see it: gcloud needs both."""
    place = f"zones/europe-west4-a/instances/{CLUSTER}-{host}"
    tunnel = outside.post(
        f"/iap/v1/projects/demo-project/iap_tunnel/{place}:getIamPolicy",
        json={"options": {"requestedPolicyVersion": 3}},
    )
    seen = outside.get(
        f"{PROJECT}/{place}/getIamPolicy", params={"optionsRequestedPolicyVersion": 3}
    )
    members = [
        {member for binding in answer.json().get("bindings", []) for member in binding["members"]}
        for answer in (tunnel, seen)
    ]
    assert members[0] == members[1]
    return members[0]


def templates(outside: httpx.Client) -> dict[str, Any]:
    """The controller's metadata about the node sets."""
    metadata = vm(outside, f"{CLUSTER}-controller")["metadata"]
    return dict(json.loads(metadata["muster-templates"]))


def bundle_of(outside: httpx.Client) -> str:
    """The program's name of the bundle that the controller applies."""
    address = vm(outside, f"{CLUSTER}-controller")["metadata"]["muster-bundle"]
    digest = address.rpartition("bundle-")[2].removesuffix(".tar.gz")
    return f"bundles-bundle-{digest[:12]}"


def parents_are_components(cluster: Stack) -> None:
    """Each of the provider's resources is part of a component, except one or two."""
    loose = {
        name
        for name, item in cluster.resources().items()
        if item["type"].startswith("gcp:")
        and "::muster:gcp:" not in item.get("parent", "")
        and "$muster:gcp:" not in item.get("parent", "")
    }
    assert loose == {"address"}


def test_a_failed_image_is_said_and_the_next_up_converges(
    cluster: Stack, script: Script, fakecloud: Server, outside: httpx.Client
):
    fakecloud.do(lambda _: script.fails.update(builder="E: no such package"))
    failed = cluster.up(fails=True)
    assert failed.failed == ["image"]
    assert "E: no such package" in failed.output
    assert "fatal: E: no such package" in failed.output, "the end of the console"
    assert names(outside, f"{ZONE}/instances") == []
    assert names(outside, f"{PROJECT}/global/images") == []

    # A first boot that fails is another failure; an up repairs both.
    def fail_at_login(_: Cloud) -> None:
        script.fails.clear()
        script.fails["login"] = "no munge key"
        # Longer than it takes to begin to wait: a failure from before is given time.
        script.step_seconds = 2

    fakecloud.do(fail_at_login)
    failed = cluster.up(fails=True)
    assert failed.failed == ["login-0-configured"]
    assert f'{CLUSTER}-login-0 could not configure itself at "Mount the folders"' in failed.output

    def repair(cloud: Cloud) -> None:
        script.fails.clear()
        script.step_seconds = 0
        guests = cloud.backend
        assert isinstance(guests, Guests)
        guests.again(f"{CLUSTER}-login-0")

    fakecloud.do(repair)
    assert cluster.up().named("create") == ["login-0-configured"]
    assert cluster.up().changes == []


def test_what_is_wrong_is_one_sentence_before_anything_is_made(
    cluster: Stack,
    definition: Definition,
    fakecloud: Server,
    outside: httpx.Client,
    contents: Callable[[], set[tuple[str, str]]],
):
    before = contents()

    def refused(*sentences: str) -> None:
        run = cluster.up(fails=True)
        for sentence in sentences:
            assert sentence in run.output, run.output
        assert "Traceback" not in run.output
        assert contents() == before

    cluster.configure({"muster:inventry": "x"})
    refused("muster:inventry is no setting of Muster", "pulumi config rm muster:inventry")
    cluster.command("config", "rm", "--stack", CLUSTER, "muster:inventry")

    inventory = str(definition.inventory)
    cluster.configure({"muster:inventory": "inventories/none"})
    refused("muster:inventory: there is no folder")
    cluster.configure({"muster:inventory": inventory})

    cluster.configure({"gcp:project": "another-project"})
    refused("the project another-project is not there, or you have no rights in it")
    cluster.configure({"gcp:project": "demo-project"})

    good = definition.file.read_text()
    definition.change(
        lambda document: document["nodes"]["debug"].update(machine_type="n1-standard-3")
    )
    refused("cluster.yml:", 'no machine type "n1-standard-3" is known')
    definition.file.write_text(good)
    definition.change(lambda document: document.update(name="other"))
    refused("the stack is slurm10", "pulumi stack select --create other")
    definition.file.write_text(good)

    region = "europe-west4"
    fakecloud.do(lambda cloud: cloud.settings.quotas.update({region: {"CPUS": 25, "INSTANCES": 8}}))
    refused(
        "the project's quota CPUS is 25 in europe-west4, and the definition's maximum needs 26",
        "the project's quota INSTANCES is 8 in europe-west4",
    )
    fakecloud.do(lambda cloud: cloud.settings.quotas.clear())

    service = "/serviceusage/v1/projects/demo-project/services/iap.googleapis.com"
    assert outside.post(f"{service}:disable", json={}).is_success
    before = contents()
    refused("has not enabled iap.googleapis.com: `gcloud services enable iap.googleapis.com")
    assert outside.post(f"{service}:enable", json={}).is_success
    before = contents()

    token = cluster.environment.pop("GOOGLE_OAUTH_ACCESS_TOKEN")
    cluster.environment["NO_GCE_CHECK"] = "true"
    refused("): run `gcloud auth application-default login`, or set GOOGLE_OAUTH_ACCESS_TOKEN")
    cluster.environment["GOOGLE_OAUTH_ACCESS_TOKEN"] = token

    labels = {"muster-cluster": f"{CLUSTER}-gpu", "muster-role": "state"}
    body = {"name": f"{CLUSTER}-gpu-state", "sizeGb": "10", "labels": labels}
    assert outside.post(f"{ZONE}/disks", json=body).is_success
    before = contents()
    refused(f'a cluster "{CLUSTER}-gpu"', "take another cluster.name than slurm10")
    assert outside.delete(f"{ZONE}/disks/{CLUSTER}-gpu-state").is_success
    before = contents()

    body = {"name": CLUSTER, "autoCreateSubnetworks": False}
    assert outside.post(f"{PROJECT}/global/networks", json=body).is_success
    before = contents()
    refused("another cluster has the name")
