"""One resource of each type that Muster may use, wired as in a cluster.

test_everything.py counts them: a mapping of the stand-in that isn't here fails it.
"""

import pulumi
import pulumi_gcp as gcp

ZONE, REGION = "europe-west4-a", "europe-west4"
LABELS = {"cluster": "all"}
project = gcp.organizations.get_client_config().project
debian = gcp.compute.get_image(family="debian-12", project="debian-cloud")

network = gcp.compute.Network("network", name="all-net", auto_create_subnetworks=False)
subnetwork = gcp.compute.Subnetwork(
    "subnetwork", name="all-sub", network=network.id, region=REGION, ip_cidr_range="10.64.0.0/20"
)
gcp.compute.Firewall(
    "ssh",
    name="all-ssh",
    network=network.name,
    allows=[{"protocol": "tcp", "ports": ["22"]}],
    source_ranges=["35.235.240.0/20"],
    target_service_accounts=[],
)
router = gcp.compute.Router("router", name="all-router", network=network.id, region=REGION)
gcp.compute.RouterNat(
    "nat",
    name="all-nat",
    router=router.name,
    region=REGION,
    nat_ip_allocate_option="AUTO_ONLY",
    source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
    subnetworks=[{"name": subnetwork.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]}],
    log_config={"enable": True, "filter": "ERRORS_ONLY"},
)
address = gcp.compute.Address(
    "address",
    name="all-controller",
    address_type="INTERNAL",
    subnetwork=subnetwork.id,
    region=REGION,
    labels=LABELS,
)

account = gcp.serviceaccount.Account("account", account_id="all-node", display_name="nodes")
role = gcp.projects.IAMCustomRole(
    "role",
    role_id="all_controller",
    title="controller",
    permissions=["compute.instances.create", "compute.instances.delete"],
)
gcp.projects.IAMMember(
    "creates",
    project=project,
    role=role.name,
    member=account.member,
    condition={
        "title": "own",
        "expression": f"resource.name.startsWith('projects/{project}/zones/{ZONE}/instances/all-')",
    },
)
gcp.serviceaccount.IAMMember(
    "acts",
    service_account_id=account.name,
    role="roles/iam.serviceAccountUser",
    member=account.member,
)
gcp.compute.SubnetworkIAMMember(
    "uses-subnetwork",
    subnetwork=subnetwork.name,
    region=REGION,
    role="roles/compute.networkUser",
    member=account.member,
)

bucket = gcp.storage.Bucket(
    "bucket",
    name="all-bundle",
    location="EUROPE-WEST4",
    uniform_bucket_level_access=True,
    public_access_prevention="enforced",
    labels=LABELS,
)
gcp.storage.BucketObject(
    "bundle", name="bundle/one.txt", bucket=bucket.name, source=pulumi.StringAsset("a bundle")
)
gcp.storage.BucketObject(
    "program", name="program.py", bucket=bucket.name, source=pulumi.FileAsset("__main__.py")
)
gcp.storage.BucketIAMMember(
    "reads-bundle",
    bucket=bucket.name,
    role="roles/storage.objectViewer",
    member=account.member,
)

secret = gcp.secretmanager.Secret(
    "secret", secret_id="all-munge", replication={"auto": {}}, labels=LABELS
)
gcp.secretmanager.SecretVersion("version", secret=secret.id, secret_data="planted-5e1c")
gcp.secretmanager.SecretIamMember(
    "reads-secret",
    secret_id=secret.secret_id,
    role="roles/secretmanager.secretAccessor",
    member=account.member,
)

state = gcp.compute.Disk(
    "state", name="all-state", zone=ZONE, size=20, type="pd-ssd", labels=LABELS
)
gcp.compute.DiskIamMember(
    "sees-disk", name=state.name, zone=ZONE, role="roles/compute.viewer", member=account.member
)
snapshots = gcp.compute.ResourcePolicy(
    "snapshots",
    name="all-snapshots",
    region=REGION,
    snapshot_schedule_policy={
        "schedule": {"daily_schedule": {"days_in_cycle": 1, "start_time": "04:00"}},
        "retention_policy": {"max_retention_days": 7},
    },
)
gcp.compute.DiskResourcePolicyAttachment(
    "snapshots-of-state", name=snapshots.name, disk=state.name, zone=ZONE
)
builder = gcp.compute.Disk("builder", name="all-builder", zone=ZONE, image=debian.self_link)
image = gcp.compute.Image(
    "image", name="all-image-1", family="all-image", source_disk=builder.self_link, labels=LABELS
)
gcp.compute.ImageIamMember(
    "uses-image", image=image.name, role="roles/compute.imageUser", member=account.member
)

template = gcp.compute.InstanceTemplate(
    "template",
    name_prefix="all-cpu-",
    machine_type="n1-standard-2",
    disks=[{"source_image": image.self_link, "boot": True, "disk_size_gb": 20}],
    network_interfaces=[{"subnetwork": subnetwork.self_link}],
    metadata={"digest": "one"},
    labels=LABELS,
    scheduling={
        "preemptible": True,
        "provisioning_model": "SPOT",
        "automatic_restart": False,
        "instance_termination_action": "DELETE",
    },
    service_account={"email": account.email, "scopes": ["cloud-platform"]},
)
controller = gcp.compute.Instance(
    "controller",
    name="all-controller",
    zone=ZONE,
    machine_type="n1-standard-2",
    allow_stopping_for_update=True,
    boot_disk={"initialize_params": {"image": image.self_link, "size": 20, "type": "pd-balanced"}},
    attached_disks=[{"source": state.self_link, "device_name": "state"}],
    network_interfaces=[{"subnetwork": subnetwork.self_link, "network_ip": address.address}],
    metadata={"digest": "one", "block-project-ssh-keys": "TRUE"},
    tags=["all"],
    labels=LABELS,
    service_account={"email": account.email, "scopes": ["cloud-platform"]},
    shielded_instance_config={"enable_secure_boot": True},
)
gcp.compute.InstanceIAMMember(
    "sees-controller",
    instance_name=controller.name,
    zone=ZONE,
    role="roles/compute.viewer",
    member=account.member,
)
gcp.iap.TunnelInstanceIAMMember(
    "tunnels",
    instance=controller.name,
    zone=ZONE,
    role="roles/iap.tunnelResourceAccessor",
    member="user:ada@example.org",
)

scratch = gcp.compute.Disk("scratch", name="all-scratch", zone=ZONE, size=10)
login = gcp.compute.Instance(
    "login",
    name="all-login",
    zone=ZONE,
    machine_type="n1-standard-2",
    boot_disk={"initialize_params": {"image": "debian-cloud/debian-12"}},
    network_interfaces=[{"subnetwork": subnetwork.self_link, "access_configs": [{}]}],
    # What another resource attaches would look like a change here.
    opts=pulumi.ResourceOptions(ignore_changes=["attachedDisks"]),
)
gcp.compute.AttachedDisk("scratch-of-login", disk=scratch.id, instance=login.id)

pulumi.export("address", controller.network_interfaces[0].network_ip)
pulumi.export("public", login.network_interfaces[0].access_configs[0].nat_ip)
pulumi.export("template", template.self_link_unique)
pulumi.export("account", account.email)
pulumi.export("url", bucket.url)
pulumi.export("image", debian.name)
