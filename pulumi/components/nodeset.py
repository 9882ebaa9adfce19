"""What the nodes of one set are made from; the nodes themselves are SLURM's business."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from components import vm
from muster.cloud.names import NODE, NODE_SET_LABEL, Names
from muster.cluster.nodes import VirtualMachines


@dataclass(frozen=True)
class NodeSetArgs:
    """What its nodes are like."""

    names: Names
    node_set: str
    nodes: VirtualMachines
    zones: Sequence[str]
    region: str
    image: pulumi.Input[str]
    """Link of the image."""
    subnet: pulumi.Input[str]
    """Link of the subnet."""
    account: pulumi.Input[str]
    """Email of the nodes' account."""
    hosts: pulumi.Input[str]
    """JSON: host name -> address, of hosts whose address is fixed."""
    mounts: Sequence[Mapping[str, str]]
    """What they mount, in this order."""
    people: str
    """Shared folder with the passwd and group files of the cluster's people."""


class NodeSet(pulumi.ComponentResource):
    """Instance template, and placement policy where nodes are to stand near each other.

    `told` is what the controller is told of the set: template and zones.
    """

    template: gcp.compute.InstanceTemplate
    told: pulumi.Output[dict[str, object]]

    def __init__(
        self, name: str, args: NodeSetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:NodeSet", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        names, nodes = args.names, args.nodes
        labels = nodes.labels | names.labels(NODE, **{NODE_SET_LABEL: args.node_set})
        placement = None
        if nodes.compact:
            placement = gcp.compute.ResourcePolicy(
                f"{name}-placement",
                name=names.placement(args.node_set),
                region=args.region,
                group_placement_policy={"collocation": "COLLOCATED"},
                opts=inside,
            )
        # Its name ends with digits of the provider's, so that the new one is there before the old
        # one goes.
        self.template = gcp.compute.InstanceTemplate(
            f"{name}-template",
            name_prefix=names.template_prefix(args.node_set),
            machine_type=nodes.machine_type,
            disks=[
                {
                    "boot": True,
                    "auto_delete": True,
                    "source_image": args.image,
                    "disk_size_gb": nodes.disk.size_gib,
                    "disk_type": nodes.disk.type,
                    "labels": labels,
                }
            ],
            network_interfaces=[{"subnetwork": args.subnet, "nic_type": "GVNIC"}],
            service_account={"email": args.account, "scopes": [vm.CLOUD_PLATFORM]},
            metadata=vm.metadata(
                names,
                NODE,
                **{
                    "muster-hosts": args.hosts,
                    "muster-mounts": json.dumps(list(args.mounts)),
                    "muster-people": args.people,
                },
            ),
            labels=labels,
            scheduling=scheduling(nodes),
            shielded_instance_config=vm.SHIELDED,
            resource_policies=placement.id if placement else None,
            opts=inside,
        )
        self.told = self.template.name.apply(
            lambda template: {
                "template": f"projects/{names.project}/global/instanceTemplates/{template}",
                "zones": list(args.zones),
            }
        )
        self.register_outputs({"template": self.template.name})


def scheduling(nodes: VirtualMachines) -> dict[str, object]:
    """Return how Google treats the VMs.

    A VM that comes back by itself would be a node that SLURM has given up.
    """
    if nodes.spot:
        return {
            "preemptible": True,
            "provisioning_model": "SPOT",
            "instance_termination_action": "DELETE",
            "on_host_maintenance": "TERMINATE",
            "automatic_restart": False,
        }
    # https://cloud.google.com/compute/docs/instances/use-compact-placement-policies#restrictions
    moves = "TERMINATE" if nodes.compact else "MIGRATE"
    return {"on_host_maintenance": moves, "automatic_restart": False}
