"""A small program for tests of the engine, with each kind of change that Muster's program has.

Tests vary its configuration, so they need not rewrite the program.
"""

import pulumi
import pulumi_gcp as gcp
from waiting import Wait

config = pulumi.Config()
zone = config.get("zone") or "europe-west4-a"
prefix = config.get("prefix") or "t"
boot_gb = config.get_int("boot_gb") or 10
region = zone.rsplit("-", 1)[0]

network = gcp.compute.Network(
    "network",
    name=f"{prefix}-net",
    auto_create_subnetworks=False,
    description=config.get("description"),
    mtu=config.get_int("mtu") or 8896,
)
subnetwork = gcp.compute.Subnetwork(
    "subnetwork",
    name=f"{prefix}-subnet",
    network=network.id,
    region=region,
    ip_cidr_range=config.get("range") or "10.64.0.0/20",
    private_ip_google_access=True,
)
disk = gcp.compute.Disk(
    "disk",
    name=f"{prefix}-state",
    zone=zone,
    size=config.get_int("disk_gb") or 20,
    type="pd-ssd",
    labels={"cluster": prefix},
)
machine = gcp.compute.Instance(
    "machine",
    name=f"{prefix}-controller",
    zone=zone,
    machine_type=config.get("machine_type") or "n1-standard-2",
    allow_stopping_for_update=True,
    boot_disk={"initialize_params": {"image": "debian-cloud/debian-12", "size": boot_gb}},
    attached_disks=[{"source": disk.self_link, "device_name": "state"}],
    network_interfaces=[{"subnetwork": subnetwork.self_link}],
    metadata={
        "digest": config.get("digest") or "one",
        **({"token": secret} if (secret := config.get_secret("token")) else {}),
    },
    metadata_startup_script=config.get("script"),
    labels={"cluster": prefix},
)
booted = Wait(
    "booted",
    digest=config.get("digest") or "one",
    opts=pulumi.ResourceOptions(depends_on=[machine]),
)

pulumi.export("address", machine.network_interfaces[0].network_ip)
pulumi.export("machine", machine.self_link)
pulumi.export(
    "sentence",
    pulumi.Output.concat(machine.name, " is at ", machine.network_interfaces[0].network_ip),
)
pulumi.export("booted", booted.digest)
