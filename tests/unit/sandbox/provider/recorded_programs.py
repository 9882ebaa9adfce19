"""The inputs of the programs that Google's provider was recorded with.

They are those of tests/engine/programs/everything; recorded_cluster.py has those of pulumi/.
"""

from typing import Any

ZONE, REGION, PROJECT = "europe-west4-a", "europe-west4", "demo-project"
LABELS = {"cluster": "all"}
ACCOUNT = f"all-node@{PROJECT}.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{ACCOUNT}"
SUBNET = f"projects/{PROJECT}/regions/{REGION}/subnetworks/all-sub"
LINK = "https://www.googleapis.com/compute/v1/projects"
BUILDER = f"{LINK}/{PROJECT}/zones/{ZONE}/disks/all-builder"
IMAGE = f"{LINK}/{PROJECT}/global/images/all-image-1"
SCOPES = {"email": ACCOUNT, "scopes": ["cloud-platform"]}
DEBIAN = f"{LINK}/debian-cloud/global/images/debian-12-bookworm-v20261110"
EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    ("compute/network:Network", {"name": "all-net", "autoCreateSubnetworks": False}),
    (
        "compute/subnetwork:Subnetwork",
        {
            "name": "all-sub",
            "network": f"projects/{PROJECT}/global/networks/all-net",
            "region": REGION,
            "ipCidrRange": "10.64.0.0/20",
        },
    ),
    (
        "compute/firewall:Firewall",
        {
            "name": "all-ssh",
            "network": "all-net",
            "allows": [{"protocol": "tcp", "ports": ["22"]}],
            "sourceRanges": ["35.235.240.0/20"],
            "targetServiceAccounts": [],
        },
    ),
    (
        "compute/router:Router",
        {
            "name": "all-router",
            "network": f"projects/{PROJECT}/global/networks/all-net",
            "region": REGION,
        },
    ),
    (
        "compute/routerNat:RouterNat",
        {
            "name": "all-nat",
            "router": "all-router",
            "region": REGION,
            "natIpAllocateOption": "AUTO_ONLY",
            "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
            "subnetworks": [{"name": SUBNET, "sourceIpRangesToNats": ["ALL_IP_RANGES"]}],
            "logConfig": {"enable": True, "filter": "ERRORS_ONLY"},
        },
    ),
    (
        "compute/address:Address",
        {
            "name": "all-controller",
            "addressType": "INTERNAL",
            "subnetwork": SUBNET,
            "region": REGION,
            "labels": LABELS,
        },
    ),
    ("serviceaccount/account:Account", {"accountId": "all-node", "displayName": "nodes"}),
    (
        "projects/iAMCustomRole:IAMCustomRole",
        {
            "roleId": "all_controller",
            "title": "controller",
            "permissions": ["compute.instances.create", "compute.instances.delete"],
        },
    ),
    (
        "projects/iAMMember:IAMMember",
        {
            "project": PROJECT,
            "role": f"projects/{PROJECT}/roles/all_controller",
            "member": MEMBER,
            "condition": {
                "title": "own",
                "expression": "resource.name.startsWith("
                f"'projects/{PROJECT}/zones/{ZONE}/instances/all-')",
            },
        },
    ),
    (
        "serviceaccount/iAMMember:IAMMember",
        {
            "serviceAccountId": f"projects/{PROJECT}/serviceAccounts/{ACCOUNT}",
            "role": "roles/iam.serviceAccountUser",
            "member": MEMBER,
        },
    ),
    (
        "compute/subnetworkIAMMember:SubnetworkIAMMember",
        {
            "subnetwork": "all-sub",
            "region": REGION,
            "role": "roles/compute.networkUser",
            "member": MEMBER,
        },
    ),
    (
        "storage/bucket:Bucket",
        {
            "name": "all-bundle",
            "location": "EUROPE-WEST4",
            "uniformBucketLevelAccess": True,
            "publicAccessPrevention": "enforced",
            "labels": LABELS,
        },
    ),
    (
        "storage/bucketIAMMember:BucketIAMMember",
        {"bucket": "all-bundle", "role": "roles/storage.objectViewer", "member": MEMBER},
    ),
    (
        "secretmanager/secret:Secret",
        {"secretId": "all-munge", "replication": {"auto": {}}, "labels": LABELS},
    ),
    (
        "secretmanager/secretVersion:SecretVersion",
        {"secret": f"projects/{PROJECT}/secrets/all-munge", "secretData": "secret"},
    ),
    (
        "secretmanager/secretIamMember:SecretIamMember",
        {
            "secretId": "all-munge",
            "role": "roles/secretmanager.secretAccessor",
            "member": MEMBER,
        },
    ),
    (
        "compute/disk:Disk",
        {"name": "all-state", "zone": ZONE, "size": 20, "type": "pd-ssd", "labels": LABELS},
    ),
    (
        "compute/diskIamMember:DiskIamMember",
        {"name": "all-state", "zone": ZONE, "role": "roles/compute.viewer", "member": MEMBER},
    ),
    (
        "compute/resourcePolicy:ResourcePolicy",
        {
            "name": "all-snapshots",
            "region": REGION,
            "snapshotSchedulePolicy": {
                "schedule": {"dailySchedule": {"daysInCycle": 1, "startTime": "04:00"}},
                "retentionPolicy": {"maxRetentionDays": 7},
            },
        },
    ),
    (
        "compute/diskResourcePolicyAttachment:DiskResourcePolicyAttachment",
        {"name": "all-snapshots", "disk": "all-state", "zone": ZONE},
    ),
    ("compute/disk:Disk", {"name": "all-builder", "zone": ZONE, "image": DEBIAN}),
    (
        "compute/image:Image",
        {"name": "all-image-1", "family": "all-image", "sourceDisk": BUILDER, "labels": LABELS},
    ),
    (
        "compute/imageIamMember:ImageIamMember",
        {"image": "all-image-1", "role": "roles/compute.imageUser", "member": MEMBER},
    ),
    (
        "compute/instanceTemplate:InstanceTemplate",
        {
            "namePrefix": "all-cpu-",
            "machineType": "n1-standard-2",
            "disks": [{"sourceImage": IMAGE, "boot": True, "diskSizeGb": 20}],
            "networkInterfaces": [{"subnetwork": SUBNET}],
            "metadata": {"digest": "one"},
            "labels": LABELS,
            "scheduling": {
                "preemptible": True,
                "provisioningModel": "SPOT",
                "automaticRestart": False,
                "instanceTerminationAction": "DELETE",
            },
            "serviceAccount": SCOPES,
        },
    ),
    (
        "compute/instance:Instance",
        {
            "name": "all-controller",
            "zone": ZONE,
            "machineType": "n1-standard-2",
            "allowStoppingForUpdate": True,
            "bootDisk": {"initializeParams": {"image": IMAGE, "size": 20, "type": "pd-balanced"}},
            "attachedDisks": [
                {
                    "source": f"{LINK}/{PROJECT}/zones/{ZONE}/disks/all-state",
                    "deviceName": "state",
                }
            ],
            "networkInterfaces": [{"subnetwork": SUBNET, "networkIp": "10.64.0.2"}],
            "metadata": {"digest": "one", "block-project-ssh-keys": "TRUE"},
            "tags": ["all"],
            "labels": LABELS,
            "serviceAccount": SCOPES,
            "shieldedInstanceConfig": {"enableSecureBoot": True},
        },
    ),
    (
        "compute/instanceIAMMember:InstanceIAMMember",
        {
            "instanceName": "all-controller",
            "zone": ZONE,
            "role": "roles/compute.viewer",
            "member": MEMBER,
        },
    ),
    (
        "iap/tunnelInstanceIAMMember:TunnelInstanceIAMMember",
        {
            "instance": "all-controller",
            "zone": ZONE,
            "role": "roles/iap.tunnelResourceAccessor",
            "member": "user:ada@example.org",
        },
    ),
    ("compute/disk:Disk", {"name": "all-scratch", "zone": ZONE, "size": 10}),
    (
        "compute/instance:Instance",
        {
            "name": "all-login",
            "zone": ZONE,
            "machineType": "n1-standard-2",
            "bootDisk": {"initializeParams": {"image": "debian-cloud/debian-12"}},
            "networkInterfaces": [{"subnetwork": SUBNET, "accessConfigs": [{}]}],
        },
    ),
    (
        "compute/attachedDisk:AttachedDisk",
        {
            "disk": f"projects/{PROJECT}/zones/{ZONE}/disks/all-scratch",
            "instance": f"projects/{PROJECT}/zones/{ZONE}/instances/all-login",
        },
    ),
]
"""Type and inputs, in an order in which they can be made."""
