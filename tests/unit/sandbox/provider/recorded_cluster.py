"""The inputs that Muster's own program, pulumi/, gave when Google's provider was recorded."""

from collections.abc import Mapping
from typing import Any

from recorded_programs import PROJECT, REGION, ZONE

BOOT = {
    "boot": True,
    "autoDelete": True,
    "diskSizeGb": 20,
    "diskType": "pd-balanced",
}
LOCAL_SSD = {
    "type": "SCRATCH",
    "diskType": "local-ssd",
    "diskSizeGb": 375,
    "interface": "NVME",
    "boot": False,
    "autoDelete": True,
}
NIC = {"subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/slurm10", "nicType": "GVNIC"}
STANDARD = {"automaticRestart": False, "onHostMaintenance": "MIGRATE"}
ENDING = {"automaticRestart": False, "onHostMaintenance": "TERMINATE"}
SPOT = {
    "preemptible": True,
    "provisioningModel": "SPOT",
    "instanceTerminationAction": "DELETE",
    **ENDING,
}
SHIELDED = {"enableSecureBoot": True, "enableVtpm": True, "enableIntegrityMonitoring": True}
T4 = {"type": "nvidia-tesla-t4", "count": 1}


def template(number: str, **members: Any) -> tuple[str, str, str, dict[str, Any]]:
    inputs = {"machineType": "n1-standard-2", "shieldedInstanceConfig": SHIELDED, **members}
    disks = [BOOT, *inputs.pop("disks", [])]
    name = f"slurm10-{number}"
    path = "global/instanceTemplates"
    inputs |= {"disks": disks, "networkInterfaces": [NIC], "serviceAccount": node_account()}
    return "compute/instanceTemplate:InstanceTemplate", path, name, inputs


def node_account(role: str = "node") -> dict[str, Any]:
    email = f"slurm10-{role}@{PROJECT}.iam.gserviceaccount.com"
    return {"email": email, "scopes": ["cloud-platform"]}


def vm(name: str, role: str, nic: Mapping[str, Any], **members: Any) -> tuple[str, str, str, Any]:
    image = f"projects/{PROJECT}/global/images/family/slurm10"
    labels = {"muster-cluster": "slurm10", "muster-role": role}
    initial = {"image": image, "size": 20, "type": "pd-balanced", "labels": labels}
    inputs = {
        "zone": ZONE,
        "machineType": "n1-standard-2",
        "bootDisk": {"autoDelete": True, "initializeParams": initial},
        "networkInterfaces": [{**NIC, **nic}],
        "serviceAccount": node_account(role),
        "scheduling": {"automaticRestart": True, "onHostMaintenance": "MIGRATE"},
        "shieldedInstanceConfig": SHIELDED,
        **members,
    }
    return "compute/instance:Instance", f"zones/{ZONE}/instances", name, inputs


NET = f"projects/{PROJECT}/global/networks/slurm10"
OF_CLUSTER = {"muster-cluster": "slurm10"}


def firewall(
    name: str, sources: str, allows: list[dict[str, Any]], *roles: str
) -> tuple[str, str, str, dict[str, Any]]:
    inputs: dict[str, Any] = {"network": "slurm10", "sourceRanges": [sources], "allows": allows}
    if roles:
        inputs["targetServiceAccounts"] = [node_account(role)["email"] for role in roles]
    return "compute/firewall:Firewall", "global/firewalls", f"slurm10-{name}", inputs


SSH = [{"protocol": "tcp", "ports": ["22"]}]
NOT_SECURE = {**SHIELDED, "enableSecureBoot": False}
STATE = {"source": f"projects/{PROJECT}/zones/{ZONE}/disks/slurm10-state", "deviceName": "state"}
CLUSTER: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "compute/network:Network",
        "global/networks",
        "slurm10",
        {"autoCreateSubnetworks": False, "mtu": 8896, "routingMode": "REGIONAL"},
    ),
    (
        "compute/subnetwork:Subnetwork",
        f"regions/{REGION}/subnetworks",
        "slurm10",
        {
            "network": NET,
            "region": REGION,
            "ipCidrRange": "10.10.0.0/16",
            "privateIpGoogleAccess": True,
        },
    ),
    # The provider sends the rules as a set: their order is the recording's.
    firewall("internal", "10.10.0.0/16", [{"protocol": name} for name in ("icmp", "udp", "tcp")]),
    firewall("iap-ssh", "35.235.240.0/20", SSH, "controller", "login"),
    firewall("public-ssh", "0.0.0.0/0", SSH, "login"),
    (
        "compute/address:Address",
        f"regions/{REGION}/addresses",
        "slurm10-controller",
        {
            "addressType": "INTERNAL",
            "subnetwork": NIC["subnetwork"],
            "region": REGION,
            "labels": {**OF_CLUSTER, "muster-role": "controller"},
        },
    ),
    (
        "compute/resourcePolicy:ResourcePolicy",
        f"regions/{REGION}/resourcePolicies",
        "slurm10-snapshots",
        {
            "region": REGION,
            "snapshotSchedulePolicy": {
                "schedule": {"dailySchedule": {"daysInCycle": 1, "startTime": "03:00"}},
                "retentionPolicy": {
                    "maxRetentionDays": 7,
                    "onSourceDiskDelete": "APPLY_RETENTION_POLICY",
                },
                "snapshotProperties": {"labels": OF_CLUSTER},
            },
        },
    ),
    (
        "compute/disk:Disk",
        f"zones/{ZONE}/disks",
        "slurm10-state",
        {
            "zone": ZONE,
            "size": 100,
            "type": "pd-balanced",
            "labels": {**OF_CLUSTER, "muster-role": "state", "muster-slurm": "22-05"},
        },
    ),
    template("debug-20261123132147832200000001", scheduling=STANDARD),
    template("debug-20261123132809863000000001", scheduling=SPOT),
    template(
        "debug-20261123132937345300000001",
        scheduling=SPOT,
        guestAccelerators=[T4],
        shieldedInstanceConfig=NOT_SECURE,
    ),
    template(
        "debug-20261123132937460500000002",
        scheduling=ENDING,
        guestAccelerators=[T4],
        shieldedInstanceConfig=NOT_SECURE,
    ),
    template(
        "big-20261123130611586500000001",
        machineType="c2-standard-4",
        disks=[LOCAL_SSD, LOCAL_SSD],
        scheduling=ENDING,
    ),
    vm("slurm10-login-0", "login", {}),
    vm("slurm10-controller", "controller", {"networkIp": "10.10.0.2"}, attachedDisks=[STATE]),
]
"""Type, path and name of a recorded request, and the inputs that Muster's program gave."""
