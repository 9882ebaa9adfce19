"""The cluster's own network: private addresses, a way out, and ssh through IAP only."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from muster.gcp.names import Names

# https://cloud.google.com/iap/docs/using-tcp-forwarding#create-firewall-rule
IAP_RANGE = "35.235.240.0/20"
# The largest that Google's networks carry: https://cloud.google.com/vpc/docs/mtu
MTU = 8896


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """The network's settings."""

    names: Names
    region: str
    addresses: str
    """Range of the subnet, in CIDR notation."""
    ssh_to: list[pulumi.Input[str]]
    """Service accounts of the VMs that people reach by ssh through IAP."""
    controller: pulumi.Input[str]
    """Service account of the controller."""
    nodes: pulumi.Input[str]
    """That of compute nodes."""
    public_ssh_to: list[pulumi.Input[str]]
    """Those of VMs that the internet reaches; empty if there are none."""


class Network(pulumi.ComponentResource):
    """Network, subnet, NAT and firewall."""

    subnet: gcp.compute.Subnetwork

    def __init__(
        self, name: str, *, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:Network", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        names = args.names
        network = gcp.compute.Network(
            name,
            name=names.network,
            auto_create_subnetworks=False,
            mtu=MTU,
            routing_mode="REGIONAL",
            opts=inside,
        )
        self.subnet = gcp.compute.Subnetwork(
            f"{name}-subnet",
            name=names.network,
            network=network.id,
            region=args.region,
            ip_cidr_range=args.addresses,
            # Google's APIs are reached without a public address.
            private_ip_google_access=True,
            opts=inside,
        )
        router = gcp.compute.Router(
            f"{name}-router",
            name=names.network,
            network=network.id,
            region=args.region,
            opts=inside,
        )
        gcp.compute.RouterNat(
            f"{name}-nat",
            name=names.network,
            router=router.name,
            region=args.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[{"name": self.subnet.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]}],
            # Without it a VM has 64 connections to one address at a time, and a closed one counts
            # for two minutes: https://cloud.google.com/nat/docs/ports-and-addresses
            enable_dynamic_port_allocation=True,
            min_ports_per_vm=64,
            max_ports_per_vm=8192,
            log_config={"enable": True, "filter": "ERRORS_ONLY"},
            opts=inside,
        )
        gcp.compute.Firewall(
            f"{name}-internal",
            name=names.firewall("internal"),
            network=network.name,
            allows=[{"protocol": protocol} for protocol in ("tcp", "udp", "icmp")],
            source_ranges=[args.addresses],
            opts=inside,
        )
        ssh = [{"protocol": "tcp", "ports": ["22"]}]
        # Administrators come through IAP: nothing in the subnet reaches the controller's sshd.
        gcp.compute.Firewall(
            f"{name}-no-internal-ssh",
            name=names.firewall("no-internal-ssh"),
            network=network.name,
            denies=ssh,
            priority=900,
            source_ranges=[args.addresses],
            target_service_accounts=[args.controller],
            opts=inside,
        )
        # Root of a node has the munge key, so it could order slurmdbd about as any user.
        gcp.compute.Firewall(
            f"{name}-no-node-slurmdbd",
            name=names.firewall("no-node-slurmdbd"),
            network=network.name,
            denies=[{"protocol": "tcp", "ports": ["6819"]}],
            priority=900,
            source_service_accounts=[args.nodes],
            target_service_accounts=[args.controller],
            opts=inside,
        )
        gcp.compute.Firewall(
            f"{name}-iap-ssh",
            name=names.firewall("iap-ssh"),
            network=network.name,
            allows=ssh,
            source_ranges=[IAP_RANGE],
            target_service_accounts=args.ssh_to,
            opts=inside,
        )
        if args.public_ssh_to:
            gcp.compute.Firewall(
                f"{name}-public-ssh",
                name=names.firewall("public-ssh"),
                network=network.name,
                allows=ssh,
                source_ranges=["0.0.0.0/0"],
                target_service_accounts=args.public_ssh_to,
                opts=inside,
            )
        self.register_outputs({"subnet": self.subnet.id})
