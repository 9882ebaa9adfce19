"""What the program asks for, input by input. That Google takes it, tests/engine shows."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pulumi
import pytest

from muster.autoscaler.compute.node_templates import parse as parse_sets
from muster.definition.schema.node_sets import VirtualMachines, Way
from muster_sandbox.fakecloud import iam_conditions

MACHINE, IMAGE = (sha256(text).hexdigest() for text in (b"machine", b"image"))
BUCKET = "demo-project-slurm10-muster"
VM = {
    "enable-oslogin": "FALSE",
    "block-project-ssh-keys": "TRUE",
    "enable-guest-attributes": "TRUE",
    "muster-cluster": "slurm10",
}
TEMPLATES = "projects/demo-project/global/instanceTemplates"
HOSTS = '{"slurm10-controller": "10.10.0.2"}'
SHIELDED = {"enableSecureBoot": True, "enableVtpm": True, "enableIntegrityMonitoring": True}
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
ACCOUNT = "slurm10-{}@demo-project.iam.gserviceaccount.com"

Run = Callable[..., Any]


def test_one_of_each_and_no_more_for_more_nodes(run: Run):
    few = run()
    assert len(few.kinds("gcp:")) == 53
    assert len(few.components) == 9
    assert few.kinds("compute/instance:") == ["controller", "login-0"]
    assert few.kinds("dynamic/muster") == [
        "claim",
        "controller-configured",
        "image",
        "login-0-configured",
        "nodes-debug-sweeper",
        "sweeper",
    ]
    many = run(lambda cluster: cluster["nodes"]["debug"].update(max_nodes=5000))
    assert set(many.made) == set(few.made)


def test_the_network_is_private(run: Run):
    cloud = run()
    network = cloud.inputs("network")
    assert (network["name"], network["mtu"], network["autoCreateSubnetworks"]) == (
        "slurm10",
        8896,
        False,
    )
    subnet = cloud.inputs("network-subnet")
    assert subnet["privateIpGoogleAccess"] is True
    assert (subnet["ipCidrRange"], subnet["region"]) == ("10.10.0.0/16", "europe-west4")
    nat = cloud.inputs("network-nat")
    assert nat["subnetworks"] == [
        {"name": "id/network-subnet", "sourceIpRangesToNats": ["ALL_IP_RANGES"]}
    ]
    # Many connections of a VM to one address, as of a data loader or pip.
    assert nat["enableDynamicPortAllocation"] is True
    assert (nat["minPortsPerVm"], nat["maxPortsPerVm"]) == (64, 8192)
    ssh = cloud.inputs("network-iap-ssh")
    assert ssh["sourceRanges"] == ["35.235.240.0/20"]
    assert ssh["allows"] == [{"protocol": "tcp", "ports": ["22"]}]
    assert ssh["targetServiceAccounts"] == [
        ACCOUNT.format(role) for role in ("controller", "login")
    ]
    assert cloud.inputs("network-internal")["sourceRanges"] == ["10.10.0.0/16"]
    inside = cloud.inputs("network-no-internal-ssh")
    assert inside["denies"] == [{"protocol": "tcp", "ports": ["22"]}]
    assert inside["sourceRanges"] == ["10.10.0.0/16"]
    assert inside["targetServiceAccounts"] == [ACCOUNT.format("controller")]
    # Before the rule that allows all inside, which has Google's default of 1000.
    assert inside["priority"] < 1000
    assert cloud.kinds("firewall:") == [
        *("network-iap-ssh", "network-internal", "network-no-internal-ssh"),
        "network-no-node-slurmdbd",
    ]
    machines = [cloud.inputs(name) for name in ("controller", "login-0", "nodes-debug-template")]
    assert not any("accessConfigs" in vm["networkInterfaces"][0] for vm in machines)


def test_nodes_do_not_reach_slurmdbd(run: Run):
    rule = run().inputs("network-no-node-slurmdbd")
    assert rule["denies"] == [{"protocol": "tcp", "ports": ["6819"]}]
    assert rule["sourceServiceAccounts"] == [ACCOUNT.format("node")]
    assert rule["targetServiceAccounts"] == [ACCOUNT.format("controller")]
    assert rule["priority"] < 1000


def test_only_login_nodes_get_a_public_address_and_only_if_asked(run: Run):
    cloud = run(lambda cluster: cluster["cloud"]["login"].update(public_address=True, count=2))
    for name in ("login-0", "login-1"):
        assert cloud.inputs(name)["networkInterfaces"][0]["accessConfigs"] == [{}]
    assert "accessConfigs" not in cloud.inputs("controller")["networkInterfaces"][0]
    rule = cloud.inputs("network-public-ssh")
    assert rule["sourceRanges"] == ["0.0.0.0/0"]
    assert rule["targetServiceAccounts"] == [ACCOUNT.format("login")]


def test_the_controller(run: Run):
    controller = run().inputs("controller")
    assert controller.pop("metadata") == {
        **VM,
        "muster-role": "controller",
        "muster-bundle": f"gs://{BUCKET}/bundle-{MACHINE}.tar.gz",
        "muster-hosts": HOSTS,
        "muster-templates": json.dumps(
            {
                "debug": {
                    "choices": [
                        {
                            "machine_type": "n1-standard-2",
                            "spot": False,
                            "template": f"{TEMPLATES}/slurm10-debug-1",
                            "zone": "europe-west4-a",
                        }
                    ],
                    "compact": False,
                }
            }
        ),
    }
    labels = {"muster-cluster": "slurm10", "muster-role": "controller"}
    assert controller == {
        "name": "slurm10-controller",
        "zone": "europe-west4-a",
        "machineType": "n1-standard-2",
        "allowStoppingForUpdate": True,
        "bootDisk": {
            "autoDelete": True,
            "initializeParams": {
                "image": "projects/demo-project/global/images/family/slurm10",
                "size": 20,
                "type": "pd-balanced",
                "labels": labels,
            },
        },
        "attachedDisks": [
            {"source": f"link/slurm10-{key}", "deviceName": key}
            for key in ("state", "home", "apps", "data")
        ],
        "networkInterfaces": [
            {"subnetwork": "link/slurm10", "networkIp": "10.10.0.2", "nicType": "GVNIC"}
        ],
        "serviceAccount": {"email": ACCOUNT.format("controller"), "scopes": SCOPES},
        "labels": labels,
        "scheduling": {"onHostMaintenance": "MIGRATE", "automaticRestart": True},
        "shieldedInstanceConfig": SHIELDED,
    }


def test_a_vm_that_can_not_be_moved_is_ended_for_maintenance(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"]["machine_type"] = "h3-standard-88"
        cluster["cloud"]["login"]["machine_type"] = "h3-standard-88"

    cloud = run(change)
    for name in ("login-0", "nodes-debug-template"):
        assert cloud.inputs(name)["scheduling"]["onHostMaintenance"] == "TERMINATE"


def test_a_login_node_and_who_reaches_it(run: Run):
    users, admin = ["group:ml@example.org", "user:ada@example.org"], "user:eve@example.org"
    lists = {"iap_users": users, "iap_admins": [admin, users[1]]}
    cloud = run(lambda cluster: cluster["cloud"].update(lists))
    login = cloud.inputs("login-0")
    assert login["name"] == "slurm10-login-0"
    assert login["metadata"] == {
        **VM,
        "muster-role": "login",
        "muster-bundle": f"gs://{BUCKET}/bundle-{MACHINE}.tar.gz",
        "muster-hosts": HOSTS,
    }
    everybody = {*users, admin}
    granted = {("slurm10-login-0", member) for member in everybody} | {
        ("slurm10-controller", member) for member in lists["iap_admins"]
    }
    tunnels = [cloud.inputs(name) for name in cloud.kinds("tunnelInstanceIAMMember")]
    assert sorted((grant["instance"], grant["member"]) for grant in tunnels) == sorted(granted)
    assert {grant["role"] for grant in tunnels} == {"roles/iap.tunnelResourceAccessor"}
    views = [cloud.inputs(name) for name in cloud.kinds("instanceIAMMember:")]
    assert sorted((grant["instanceName"], grant["member"]) for grant in views) == sorted(granted)
    assert {grant["role"] for grant in views} == {
        "projects/demo-project/roles/slurm10_reaches_abc123"
    }
    assert cloud.inputs("rights-reaches-role")["permissions"] == [
        "compute.instances.get",
        "compute.instances.getGuestAttributes",
    ]
    boot = cloud.inputs("login-0-configured")
    assert (boot["bundle"], boot["instance_id"]) == (MACHINE, "number of slurm10-login-0")


def test_a_node_learns_where_packed_releases_are(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        tool = {"1": {"build": "make {root}", "form": "squashfs"}}
        cluster["software"] = {"modules": {"apps/tool": tool}}

    metadata = run(change).inputs("nodes-debug-template")["metadata"]
    assert metadata["muster-images"] == "/apps/.muster/images"


def test_what_a_node_is_made_from(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"] |= {"labels": {"team": "ml"}, "zones": []}

    template = run(change).inputs("nodes-debug-template")
    metadata = template.pop("metadata")
    mounts = json.loads(metadata.pop("muster-mounts"))
    assert [mount["path"] for mount in mounts] == ["/home", "/apps", "/data"]
    assert {mount["type"] for mount in mounts} == {"nfs4"}
    assert metadata == {
        **VM,
        "muster-role": "node",
        "muster-hosts": HOSTS,
        "muster-people": "/apps/.muster/extrausers",
    }
    labels = {
        "team": "ml",
        "muster-cluster": "slurm10",
        "muster-role": "node",
        "muster-node-set": "debug",
    }
    assert template == {
        "namePrefix": "slurm10-debug-",
        "machineType": "n1-standard-2",
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "sourceImage": "projects/demo-project/global/images/slurm10-1",
                "diskSizeGb": 20,
                "diskType": "pd-balanced",
                "labels": labels,
            }
        ],
        "networkInterfaces": [{"subnetwork": "link/slurm10", "nicType": "GVNIC"}],
        "serviceAccount": {"email": ACCOUNT.format("node"), "scopes": SCOPES},
        "labels": labels,
        "scheduling": {"onHostMaintenance": "MIGRATE", "automaticRestart": False},
        "shieldedInstanceConfig": SHIELDED,
    }


def test_the_zone_stands_once(run: Run):
    example = Path(__file__).parents[3] / "inventories/cloud/group_vars/all/cluster.yml"
    assert example.read_text().count("europe-west4") == 1

    def move(cluster: dict[str, Any]) -> None:
        cluster["cloud"]["zone"] = "europe-west1-b"

    cloud = run(move)
    everything = json.dumps([dict(made.inputs) for made in cloud.made.values()], default=str)
    assert "europe-west4" not in everything
    assert '"zone": "europe-west1-b"' in everything
    sets = json.loads(cloud.inputs("controller")["metadata"]["muster-templates"])
    assert {choice["zone"] for choice in sets["debug"]["choices"]} == {"europe-west1-b"}


def test_spot_and_compact_sets(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"]["spot"] = True
        cluster["nodes"]["near"] = {
            "machine_type": "c2-standard-4",
            "max_nodes": 2,
            "compact": True,
            "zones": ["europe-west4-b", "europe-west4-a"],
        }
        cluster["partitions"]["near"] = {"nodes": ["near"]}

    cloud = run(change)
    assert cloud.inputs("nodes-debug-template")["scheduling"] == {
        "preemptible": True,
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }
    # Each job's nodes have their own placement policy, which the controller creates.
    assert cloud.kinds("resourcePolicy:") == ["state-snapshots"]
    near = cloud.inputs("nodes-near-template")
    assert "resourcePolicies" not in near
    assert near["scheduling"]["onHostMaintenance"] == "TERMINATE"
    near_set = json.loads(cloud.inputs("controller")["metadata"]["muster-templates"])["near"]
    assert near_set["compact"]
    zones = [choice["zone"] for choice in near_set["choices"]]
    assert zones == ["europe-west4-b", "europe-west4-a"]
    assert "compute.resourcePolicies.use" in cloud.inputs("rights-lists-role")["permissions"]


def test_gpu_nodes_are_ended_for_maintenance_and_load_a_driver_that_nobody_signed(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"]["machine_type"] = "g2-standard-24"
        cluster["nvidia"] = {}

    cloud = run(change)
    node = cloud.inputs("nodes-debug-template")
    assert node["metadata"]["muster-gpus"] == "2"
    assert node["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert node["shieldedInstanceConfig"] == SHIELDED | {"enableSecureBoot": False}
    assert cloud.inputs("controller")["shieldedInstanceConfig"] == SHIELDED


def test_gpus_that_are_attached_are_in_each_template_and_in_the_controllers_metadata(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"] |= {
            "accelerators": {"type": "t4", "count": 2},
            "spot": True,
            "fallback": [{"spot": False}, {"machine_type": "n1-highmem-2"}],
        }
        cluster["nvidia"] = {}

    cloud = run(change)
    names = [f"nodes-debug-template{suffix}" for suffix in ("", "-1", "-2")]
    for node in map(cloud.inputs, names):
        # A template has no zone, so the type is no link.
        assert node["guestAccelerators"] == [{"type": "nvidia-tesla-t4", "count": 2}]
        assert node["metadata"]["muster-gpus"] == "2"
        assert node["scheduling"]["onHostMaintenance"] == "TERMINATE"
        assert node["shieldedInstanceConfig"] == SHIELDED | {"enableSecureBoot": False}
    templates_metadata = cloud.inputs("controller")["metadata"]["muster-templates"]
    choices = parse_sets(templates_metadata)["debug"].choices
    assert {choice.gpus for choice in choices} == {"t4:2"}
    assert "guestAccelerators" not in run().inputs("nodes-debug-template")


def test_ways_to_fall_back_to_have_their_own_templates(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"] |= {
            "spot": True,
            "zones": ["europe-west4-a", "europe-west4-b"],
            "fallback": [{"machine_type": "n2-standard-2"}, {"spot": False}],
        }

    cloud = run(change)
    ways = [cloud.inputs(f"nodes-debug-template{suffix}") for suffix in ("", "-1", "-2")]
    assert [way["machineType"] for way in ways] == [
        "n1-standard-2",
        "n2-standard-2",
        "n1-standard-2",
    ]
    assert [way["scheduling"].get("preemptible") for way in ways] == [True, True, None]
    debug_set = json.loads(cloud.inputs("controller")["metadata"]["muster-templates"])["debug"]
    assert parse_sets(json.dumps({"debug": debug_set}))["debug"].choices
    assert [
        (choice["machine_type"], choice["spot"], choice["zone"][-1])
        for choice in debug_set["choices"]
    ] == [
        ("n1-standard-2", True, "a"),
        ("n1-standard-2", True, "b"),
        ("n2-standard-2", True, "a"),
        ("n2-standard-2", True, "b"),
        ("n1-standard-2", False, "a"),
        ("n1-standard-2", False, "b"),
    ]


def cached(cluster: dict[str, Any]) -> None:
    """Let nodes cache the modules."""
    cluster["storage"]["apps"]["cached"] = True
    cluster["storage"]["cache"] = {"any_kernel": True}


def test_local_ssds_for_what_nodes_read_of_cached_folders(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cached(cluster)
        cluster["nodes"]["debug"] |= {"local_ssds": 2, "fallback": [{"spot": True}]}
        cluster["nodes"]["small"] = {"machine_type": "e2-standard-2", "max_nodes": 2}
        cluster["nodes"]["large"] = {"machine_type": "a3-highgpu-8g", "max_nodes": 2}
        cluster["nvidia"] = {"source": "nvidia", "branch": 580}
        cluster["partitions"]["others"] = {"nodes": ["small", "large"]}

    cloud = run(change)
    names = ["nodes-debug-template", "nodes-debug-template-1"]
    names += ["nodes-large-template", "nodes-small-template"]
    templates = {name: cloud.inputs(name) for name in names}
    ssd = {
        "type": "SCRATCH",
        "diskType": "local-ssd",
        "diskSizeGb": 375,
        "interface": "NVME",
        "boot": False,
        "autoDelete": True,
    }
    # a3-highgpu-8g has local SSDs without asking for them.
    assert [template["disks"][1:] for template in templates.values()] == [
        [ssd, ssd],
        [ssd, ssd],
        [],
        [],
    ]
    metadata = [template["metadata"] for template in templates.values()]
    numbers = [items.get("muster-local-ssds") for items in metadata]
    assert numbers == ["2", "2", "16", None]
    for name, template in templates.items():
        mounts = json.loads(template["metadata"]["muster-mounts"])
        cached_paths = [mount["path"] for mount in mounts if "fsc" in mount["options"].split(",")]
        assert cached_paths == ([] if name == "nodes-small-template" else ["/apps"]), name


def test_local_ssds_of_a_machine_type_stay_unused_where_nothing_is_cached(run: Run):
    def change(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"]["machine_type"] = "a2-ultragpu-1g"
        cluster["nvidia"] = {}

    assert "muster-local-ssds" not in run(change).inputs("nodes-debug-template")["metadata"]


def test_the_controllers_rights(run: Run):
    cloud = run()
    member = "serviceAccount:" + ACCOUNT.format("controller")
    assert cloud.kinds("iAMCustomRole") == [
        "rights-disks-role",
        "rights-lists-role",
        "rights-nodes-role",
        "rights-reaches-role",
        "rights-sources-role",
        "rights-uses-role",
    ]
    assert cloud.inputs("rights-nodes-role")["roleId"] == "slurm10_nodes_abc123"
    bindings = {name: cloud.inputs(name) for name in cloud.kinds("projects/iAMMember")}
    assert {binding["member"] for binding in bindings.values()} == {member}
    begins = 'resource.name.extract("/{}/{{name}}").startsWith("{}")'.format
    assert {
        name: binding.get("condition", {}).get("expression") for name, binding in bindings.items()
    } == {
        "rights-nodes": begins("instances", "slurm10-debug-"),
        "rights-disks": begins("disks", "slurm10-debug-"),
        "rights-sources": " || ".join(
            begins(collection, "slurm10-") for collection in ("images", "instanceTemplates")
        ),
        "rights-lists": None,
    }
    assert bindings["rights-nodes"]["role"] == "projects/demo-project/roles/slurm10_nodes_abc123"
    role = cloud.inputs("rights-lists-role")
    assert role["permissions"] == [
        "compute.instances.list",
        "compute.projects.get",
        "compute.regions.get",
        "compute.zoneOperations.list",
    ]
    acts = cloud.inputs("rights-acts-as-node")
    node = ACCOUNT.format("node")
    assert acts["serviceAccountId"] == f"projects/demo-project/serviceAccounts/{node}"
    assert acts["role"] == "projects/demo-project/roles/slurm10_uses_abc123"
    assert cloud.inputs("rights-subnet")["subnetwork"] == "slurm10"


def allows(cloud: Any, name: str) -> bool:
    """Whether one of the bindings lets the controller delete a VM of this name."""
    place = f"projects/demo-project/zones/europe-west4-b/instances/{name}"
    return any(
        iam_conditions.parse(cloud.inputs(binding)["condition"]["expression"])(
            {"resource.name": place}
        )
        for binding in cloud.kinds("projects/iAMMember")
        if binding.startswith("rights-nodes")
    )


def test_the_controller_may_delete_its_nodes_where_no_set_is_any_more(run: Run):
    def leave(cluster: dict[str, Any]) -> None:
        cluster["nodes"]["debug"]["zones"] = ["europe-west4-a"]

    cloud = run(leave)
    assert allows(cloud, "slurm10-debug-0")
    for other in ("web-0", "slurm100-debug-0", "slurm10-controller", "slurm10-login-0"):
        assert not allows(cloud, other), other


def test_a_condition_of_google_s_names_13_sets_and_the_next_has_one_of_its_own(run: Run):
    def many(cluster: dict[str, Any]) -> None:
        alike = {f"set{number}": cluster["nodes"]["debug"] for number in range(27)}
        cluster["nodes"] |= alike
        cluster["partitions"]["many"] = {"nodes": list(alike)}

    cloud = run(many)
    assert cloud.kinds("projects/iAMMember") == [
        *("rights-disks", "rights-disks-1", "rights-disks-2"),
        "rights-lists",
        *("rights-nodes", "rights-nodes-1", "rights-nodes-2"),
        "rights-sources",
    ]
    # parse refuses what Google would refuse.
    for name in ("slurm10-debug-0", "slurm10-set0-4", "slurm10-set11-0", "slurm10-set26-0"):
        assert allows(cloud, name), name
    assert not allows(cloud, "slurm10-set27-0")
    assert len(cloud.kinds("NodeSweeper")) == 28


def test_each_way_to_make_a_node_is_moved_or_ended_as_its_own_type_allows(program_path: None):
    from components.nodeset import scheduling

    nodes = VirtualMachines(machine_type="n2-standard-2", max_nodes=1)
    moves = {
        machine_type: scheduling(nodes, Way(machine_type, spot=False))["on_host_maintenance"]
        for machine_type in ("n2-standard-2", "h3-standard-88")
    }
    assert moves == {"n2-standard-2": "MIGRATE", "h3-standard-88": "TERMINATE"}


def test_who_reads_which_secret(run: Run):
    cloud = run()
    assert cloud.kinds("secretmanager/secretVersion") == [], "no value passes the program"
    grants = {
        (grant["secretId"], grant["role"].rpartition(".")[2], grant["member"].split("@")[0][15:])
        for grant in map(cloud.inputs, cloud.kinds("secretIamMember"))
    }
    munge, password = "slurm10-munge-key", "slurm10-slurmdbd-password"
    assert grants == {
        (munge, "secretAccessor", "slurm10-controller"),
        (munge, "secretVersionAdder", "slurm10-controller"),
        (munge, "secretAccessor", "slurm10-login"),
        (munge, "secretAccessor", "slurm10-node"),
        (password, "secretAccessor", "slurm10-controller"),
        (password, "secretVersionAdder", "slurm10-controller"),
        # A person adds it; nobody needs it but the controller.
        ("slurm10-mail-password", "secretAccessor", "slurm10-controller"),
    }


def test_the_bucket_and_who_reads_what(run: Run):
    cloud = run()
    bucket = cloud.inputs("bundles")
    assert bucket["name"] == BUCKET
    assert bucket["uniformBucketLevelAccess"] is True
    assert bucket["publicAccessPrevention"] == "enforced"
    assert cloud.kinds("bucketObject:") == [
        f"bundles-bundle-{MACHINE[:12]}",
        f"bundles-image-{IMAGE[:12]}",
    ]
    assert cloud.inputs(f"bundles-image-{IMAGE[:12]}")["name"] == f"image-{IMAGE}.tar.gz"
    readers = {
        grant["member"].split("@")[0].rpartition("-")[2]: grant["condition"]["expression"]
        for grant in map(cloud.inputs, cloud.kinds("bucketIAMMember"))
    }
    start = f"projects/_/buckets/{BUCKET}/objects"
    assert readers == {
        "controller": f'resource.name.startsWith("{start}/bundle-")',
        "login": f'resource.name.startsWith("{start}/bundle-")',
        "builder": f'resource.name.startsWith("{start}/image-")',
    }


def test_the_image_is_known_by_what_goes_into_it(run: Run):
    image = run().inputs("image")
    image.pop("__provider")
    assert {key: value for key, value in image.items() if value is not None} == {
        "project": "demo-project",
        "cluster": "slurm10",
        "zone": "europe-west4-a",
        "os": "debian-12",
        "machine_type": "n1-standard-2",
        "digest": IMAGE,
        "archive": f"gs://{BUCKET}/image-{IMAGE}.tar.gz",
        "subnetwork": "id/network-subnet",
        "account": ACCOUNT.format("builder"),
    }


def test_the_disks_that_outlive_the_controller_and_their_snapshots(run: Run):
    cloud = run()
    disk = cloud.inputs("disk-state")
    assert (disk["name"], disk["size"], disk["type"]) == ("slurm10-state", 20, "pd-balanced")
    assert disk["labels"] == {
        "muster-cluster": "slurm10",
        "muster-role": "state",
        "muster-slurm": "22-05",
    }
    policy = cloud.inputs("state-snapshots")["snapshotSchedulePolicy"]
    assert policy["schedule"] == {"dailySchedule": {"daysInCycle": 1, "startTime": "03:00"}}
    assert policy["retentionPolicy"]["maxRetentionDays"] == 7
    home = cloud.inputs("disk-home")
    assert (home["name"], home["size"], home["type"]) == ("slurm10-home", 50, "pd-balanced")
    assert home["labels"] == {"muster-cluster": "slurm10", "muster-role": "folder"}
    for key in ("state", "home", "apps", "data"):
        attachment = cloud.inputs(f"snapshots-of-{key}")
        assert (attachment["disk"], attachment["name"]) == (f"slurm10-{key}", "slurm10-snapshots")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"gcp__project": ""}, "the project is missing: `pulumi config set gcp:project PROJECT`"),
        ({"muster__inventory": "no/such"}, "muster:inventory: there is no folder"),
        ({"muster__inventory": "inventories/lab"}, "describes a cluster of your own machines"),
        ({"muster__nodes": "9"}, "muster:nodes is no setting of Muster"),
        ({"stack": "other"}, "the stack is other"),
    ],
)
def test_wrong_values_are_one_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], sentence: str
):
    for name in (
        "GOOGLE_PROJECT",
        "GOOGLE_CLOUD_PROJECT",
        "GCLOUD_PROJECT",
        "CLOUDSDK_CORE_PROJECT",
    ):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pulumi.RunError) as caught:
        run(**config)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
