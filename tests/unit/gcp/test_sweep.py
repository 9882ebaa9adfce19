"""What a sweep deletes, and what it must not."""

import pytest

from muster.gcp import sweep
from muster.gcp.api import CloudError, Compute
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.server import Server

IMAGE = "projects/debian-cloud/global/images/family/debian-12"
ZONES = ("europe-west4-a", "europe-west4-b")
REGION = "regions/europe-west4"


def labels(cluster: str, role: str) -> dict[str, str]:
    return {"muster-cluster": cluster, "muster-role": role}


def make_vm(compute: Compute, net: str, name: str, zone: str, marks: dict[str, str]) -> None:
    body = {
        "name": name,
        "labels": marks,
        "machineType": f"zones/{zone}/machineTypes/n1-standard-2",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE}}],
        "networkInterfaces": [{"subnetwork": net}],
    }
    compute.wait(compute.post(f"zones/{zone}/instances", body), 10)


def make_disk(compute: Compute, name: str, marks: dict[str, str]) -> None:
    body = {"name": name, "sizeGb": "10", "labels": marks}
    compute.wait(compute.post(f"zones/{ZONES[0]}/disks", body), 10)


def make_image(compute: Compute, name: str, marks: dict[str, str]) -> None:
    body = {"name": name, "sourceDisk": f"zones/{ZONES[0]}/disks/source", "labels": marks}
    compute.wait(compute.post("global/images", body), 10)


def names(compute: Compute) -> dict[str, list[str]]:
    resources = {
        "instances": compute.everywhere("instances"),
        "disks": compute.everywhere("disks"),
        "images": compute.list("global/images"),
    }
    return {kind: sorted(item["name"] for item in listed) for kind, listed in resources.items()}


@pytest.fixture
def full(compute: Compute, net: str) -> Compute:
    """Two clusters whose names begin alike, and a disk of no cluster."""
    make_disk(compute, "source", {})
    for cluster in ("lab", "lab-2"):
        for number, zone in enumerate(ZONES):
            name = f"{cluster}-debug-{number}"
            make_vm(compute, net, name, zone, labels(cluster, "node"))
        make_vm(compute, net, f"{cluster}-builder-1", ZONES[0], labels(cluster, "builder"))
        make_disk(compute, f"{cluster}-lost", labels(cluster, "node"))
        make_disk(compute, f"{cluster}-state", labels(cluster, "state"))
        make_image(compute, f"{cluster}-whole", labels(cluster, "image"))
        make_image(compute, f"{cluster}-half", labels(cluster, "builder"))
    return compute


def test_everything_of_one_cluster_goes_but_its_state(full: Compute):
    said: list[str] = []
    sweep.everything(full, "lab", said.append)
    left = names(full)
    assert [name for kind in left.values() for name in kind if not name.startswith("lab-2")] == [
        "lab-state",
        "source",
    ]
    assert left["instances"] == ["lab-2-builder-1", "lab-2-debug-0", "lab-2-debug-1"]
    assert left["images"] == ["lab-2-half", "lab-2-whole"]
    assert "deleting the instance lab-debug-1" in said
    assert len(said) == len(set(said)) == 6
    sweep.everything(full, "lab", said.append)
    assert len(said) == 6, "nothing was left to delete"


def test_a_vm_that_was_asked_for_before_the_end_and_comes_late_goes_too(
    full: Compute, net: str, monkeypatch: pytest.MonkeyPatch
):
    look = Compute.everywhere
    late = ["lab-debug-7"]

    def everywhere(compute: Compute, collection: str, **query: str) -> list[dict]:
        listed = look(compute, collection, **query)
        # Images come last: at its first end the sweep has looked for instances and disks.
        if collection == "disks" and not [disk for disk in listed if "state" not in disk["name"]]:
            while late:
                make_vm(full, net, late.pop(), ZONES[0], labels("lab", "node"))
        return listed

    monkeypatch.setattr(Compute, "everywhere", everywhere)
    sweep.everything(full, "lab", print)
    assert late == [], "it came"
    assert not [name for name in names(full)["instances"] if "lab-2" not in name]


def test_the_nodes_of_one_set_go_in_all_zones_and_those_of_others_stay(full: Compute, net: str):
    of_set = {"muster-node-set": "gpu"}
    for name, cluster in (("lab-gpu-0", "lab"), ("lab-gpu-1", "lab"), ("lab-2-gpu-0", "lab-2")):
        marks = labels(cluster, "node") | of_set
        make_vm(full, net, name, ZONES[name.endswith("1")], marks)
    make_vm(
        full, net, "lab-gpu-a-0", ZONES[0], labels("lab", "node") | {"muster-node-set": "gpu-a"}
    )
    before = names(full)
    sweep.nodes(full, "lab", "gpu", print)
    left = names(full)
    for kind in ("instances", "disks"):
        assert set(before[kind]) - set(left[kind]) == {"lab-gpu-0", "lab-gpu-1"}, kind
    assert left["images"] == before["images"]


def test_builders_go_and_nodes_stay(full: Compute):
    sweep.builders(full, "lab", print)
    left = names(full)
    assert [name for name in left["instances"] if "lab-2" not in name] == [
        "lab-debug-0",
        "lab-debug-1",
    ]
    assert "lab-whole" in left["images"]
    assert "lab-half" not in left["images"]


def test_a_refusal_is_tried_again(full: Compute, cloud: Server):
    busy = ApiError(403, "rateLimitExceeded", "Rate Limit Exceeded")
    cloud.do(lambda fake: fake.faults.add("compute.instances.delete", times=2, error=busy))
    sweep.everything(full, "lab", print)
    assert not [name for name in names(full)["instances"] if "lab-2" not in name]


def test_what_can_not_be_deleted_is_named_with_the_reason(full: Compute, cloud: Server):
    no = ApiError(403, "forbidden", "Required 'compute.instances.delete' permission")
    cloud.do(lambda fake: fake.faults.add("compute.instances.delete", times=99, error=no))
    with pytest.raises(CloudError) as caught:
        sweep.everything(full, "lab", print, timeout_s=0)
    assert str(caught.value) == (
        "3 instances of the cluster are still there (lab-builder-1, lab-debug-0, lab-debug-1): "
        "Required 'compute.instances.delete' permission; run the same command again"
    )


def test_placement_policies_of_jobs_go_by_their_names(compute: Compute, net: str):
    compact = {"groupPlacementPolicy": {"collocation": "COLLOCATED"}}
    kept = {"lab-debug", "lab-2-job7", "lab-jobs", "my-lab-job7"}
    for name in {*kept, "lab-job7", "lab-job81"}:
        compute.wait(compute.post(f"{REGION}/resourcePolicies", {"name": name, **compact}), 10)
    sweep.everything(compute, "lab", lambda _: None)
    assert {policy["name"] for policy in compute.everywhere("resourcePolicies")} == kept
