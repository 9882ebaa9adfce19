"""What prevents the creation of a cluster is reported before anything is created."""

from pathlib import Path

import httpx
import pytest

from muster.definition import Cluster, load
from muster.definition.schema.node_sets import VirtualMachines
from muster.gcp import preflight
from muster.gcp.api import Compute
from muster.gcp.names import Names
from muster_sandbox.fakecloud.server import Server

ROOT = Path(__file__).parents[3]
REGION = "europe-west4"


@pytest.fixture
def cluster() -> Cluster:
    return load(ROOT / "inventories" / "cloud").cluster


def with_nodes(cluster: Cluster, **nodes: VirtualMachines) -> Cluster:
    return cluster.model_copy(update={"nodes": nodes})


def limit(cloud: Server, **limits: float) -> None:
    places = {REGION: limits, "global": limits}
    cloud.do(lambda fake: fake.settings.quotas.update(places))


def test_the_example_has_no_problems(compute: Compute, cluster: Cluster):
    assert preflight.problems(compute, cluster) == []


def test_the_maximum_of_the_definition_is_counted(cluster: Cluster):
    spot = VirtualMachines(machine_type="n1-standard-4", max_nodes=3, spot=True)
    near = VirtualMachines(machine_type="c2-standard-4", max_nodes=2)
    larger = with_nodes(cluster, spot=spot, near=near)
    # Controller, login and builder have 2 CPUs each; disks of 20, 20 and 10 GiB; those of
    # state and folders have 20, 50, 20 and 50.
    assert preflight.needs(larger, {"PREEMPTIBLE_CPUS": 100}) == {
        "CPUS": 6,
        "PREEMPTIBLE_CPUS": 12,
        "C2_CPUS": 8,
        "CPUS_ALL_REGIONS": 26,
        "INSTANCES": 8,
        "SSD_TOTAL_GB": 290,
    }
    without = preflight.needs(larger, {})
    assert (without["CPUS"], without["PREEMPTIBLE_CPUS"]) == (18, 0)


def test_local_ssds_are_counted(compute: Compute, cloud: Server, cluster: Cluster):
    own = VirtualMachines(machine_type="a2-ultragpu-1g", max_nodes=2)
    two = VirtualMachines(machine_type="n1-standard-2", max_nodes=3, local_ssds=2)
    one = VirtualMachines(machine_type="n1-standard-2", max_nodes=4, local_ssds=1, spot=True)
    larger = with_nodes(cluster, own=own, two=two, one=one)
    needs = preflight.needs(larger, {"PREEMPTIBLE_LOCAL_SSD_GB": 1})
    # Those of a machine type are a part of it.
    assert (needs["LOCAL_SSD_TOTAL_GB"], needs["PREEMPTIBLE_LOCAL_SSD_GB"]) == (2250, 1500)
    limit(cloud, LOCAL_SSD_TOTAL_GB=2249)
    (sentence,) = preflight.problems(compute, with_nodes(cluster, two=two))
    assert "quota LOCAL_SSD_TOTAL_GB is 2249" in sentence


@pytest.mark.parametrize(
    ("metric", "where"),
    [("NVIDIA_T4_GPUS", "in europe-west4"), ("GPUS_ALL_REGIONS", "in all regions")],
)
def test_gpus_that_are_attached_are_counted(
    compute: Compute, cloud: Server, cluster: Cluster, metric: str, where: str
):
    given = {"machine_type": "n1-standard-4", "max_nodes": 3}
    gpu = VirtualMachines.model_validate(given | {"accelerators": {"type": "t4", "count": 2}})
    limit(cloud, **{metric: 5})
    (sentence,) = preflight.problems(compute, with_nodes(cluster, gpu=gpu))
    assert f"quota {metric} is 5 {where}, and the definition's maximum needs 6" in sentence


@pytest.mark.parametrize(
    ("metric", "where"), [("CPUS", "in europe-west4"), ("CPUS_ALL_REGIONS", "in all regions")]
)
def test_a_quota_that_is_too_small(
    compute: Compute, cloud: Server, cluster: Cluster, metric: str, where: str
):
    limit(cloud, **{metric: 26})
    assert preflight.problems(compute, cluster) == []
    limit(cloud, **{metric: 25})
    assert preflight.problems(compute, cluster) == [
        f"the project's quota {metric} is 25 {where}, and the definition's maximum needs 26: "
        "lower max_nodes, or ask for more at "
        "https://console.cloud.google.com/iam-admin/quotas?project=demo-project"
    ]


@pytest.mark.parametrize("service", ["secretmanager", "iap", "compute"])
def test_an_api_that_is_not_enabled(
    compute: Compute, cloud: Server, cluster: Cluster, service: str
):
    address = f"{cloud.url}/serviceusage/v1/projects/demo-project/services"
    answer = httpx.post(
        f"{address}/{service}.googleapis.com:disable",
        json={},
        headers={"Authorization": "Bearer owner"},
        trust_env=False,
    )
    assert answer.is_success, answer.text
    (sentence,) = preflight.problems(compute, cluster)
    assert f"has not enabled {service}.googleapis.com: `gcloud services enable" in sentence


def test_service_usage_itself_is_not_enabled(compute: Compute, cloud: Server, cluster: Cluster):
    answer = httpx.post(
        f"{cloud.url}/serviceusage/v1/projects/demo-project/services/"
        "serviceusage.googleapis.com:disable",
        json={},
        headers={"Authorization": "Bearer owner"},
        trust_env=False,
    )
    assert answer.is_success, answer.text
    (sentence,) = preflight.problems(compute, cluster)
    assert "`gcloud services enable serviceusage.googleapis.com" in sentence


def test_a_project_that_is_not_there(compute: Compute, cluster: Cluster):
    other = Compute("another-project", compute.service.session)
    (sentence,) = preflight.problems(other, cluster)
    assert sentence.startswith("the project another-project is not there, or you have no rights")
    assert "`pulumi config set gcp:project PROJECT`" in sentence


def make_state_disk(compute: Compute, cluster: str, slurm: str = "22-05") -> None:
    names = Names(cluster, compute.project)
    labels = names.labels("state", **{"muster-slurm": slurm})
    body = {"name": names.disk("state"), "sizeGb": "10", "labels": labels}
    compute.wait(compute.post("zones/europe-west4-b/disks", body), 10)


@pytest.mark.parametrize(
    ("own", "other", "short"), [("lab", "lab-gpu", "lab"), ("lab-gpu", "lab", "lab")]
)
def test_a_cluster_whose_name_begins_with_another_s_is_refused(
    compute: Compute, cluster: Cluster, own: str, other: str, short: str
):
    make_state_disk(compute, other)
    assert preflight.problems(compute, cluster.model_copy(update={"name": own})) == [
        f'the project demo-project has a cluster "{other}", and a node set of "{short}" can have '
        'a name with which its controller may delete the VMs of "lab-gpu" too: take another '
        f"cluster.name than {own}, or another project"
    ]


def test_clusters_beside_each_other_are_no_problem(compute: Compute, cluster: Cluster):
    for other in ("lab", "labs-gpu", "la", "gpu-lab"):
        make_state_disk(compute, other)
    disk = {"name": "other", "sizeGb": "10", "labels": {"muster-role": "state"}}
    compute.wait(compute.post("zones/europe-west4-b/disks", disk), 10)
    assert preflight.problems(compute, cluster.model_copy(update={"name": "lab"})) == []


def test_a_release_of_slurm_that_the_cluster_does_not_run_is_refused(
    compute: Compute, cluster: Cluster
):
    make_state_disk(compute, cluster.name)
    make_state_disk(compute, "other", slurm="24-11")
    assert preflight.problems(compute, cluster) == []
    later = cluster.model_copy(update={"slurm_version": "24.11"})
    assert preflight.problems(compute, later) == [
        "the cluster slurm10 runs SLURM 22.05, and the definition asks for 24.11: SLURM is not "
        "upgraded in place; set os and slurm_version back, or make a cluster of another "
        "cluster.name and move"
    ]


def make_subnet(compute: Compute, name: str, addresses: str) -> None:
    network = {"name": name, "autoCreateSubnetworks": False}
    compute.wait(compute.post("global/networks", network), 10)
    body = {
        "name": name,
        "network": f"projects/{compute.project}/global/networks/{name}",
        "ipCidrRange": addresses,
    }
    compute.wait(compute.post(f"regions/{REGION}/subnetworks", body), 10)


def test_other_addresses_than_the_vms_have_are_refused(compute: Compute, cluster: Cluster):
    make_subnet(compute, cluster.name, "10.10.0.0/16")
    make_subnet(compute, "slurm100", "10.99.0.0/16")
    assert preflight.problems(compute, cluster) == []
    cloud = cluster.cloud.model_copy(update={"subnet": "10.20.0.0/16"}) if cluster.cloud else None
    moved = cluster.model_copy(update={"cloud": cloud})
    assert preflight.problems(compute, moved) == [
        "the VMs of the cluster slurm10 have addresses in 10.10.0.0/16, and the definition says "
        "10.20.0.0/16: set cloud.subnet back, or make a cluster of another cluster.name and move"
    ]
