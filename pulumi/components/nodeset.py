"""The instance templates of one node set; SLURM creates the nodes from them.

With the set go its nodes, which Pulumi doesn't know.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from components import vm
from components.lifecycle import NodeSweeper
from muster.catalog import local_ssds
from muster.catalog.machine_types import MachineType
from muster.definition.schema.node_sets import VirtualMachines, Way
from muster.gcp.names import NODE, NODE_SET_LABEL, Names


@dataclass(frozen=True, kw_only=True)
class NodeSetArgs:
    """What its nodes are like."""

    names: Names
    node_set: str
    nodes: VirtualMachines
    zones: Sequence[str]
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
    caches: bool
    """Whether they cache what they read of some folder."""
    people: str
    """Shared folder with the passwd and group files of the cluster's people."""
    images: str
    """Shared folder of packed releases; empty: there are none."""


class NodeSet(pulumi.ComponentResource):
    """Instance templates, one for each way to create a node.

    `templates_metadata` is what the controller's metadata has of the set: its autoscaler reads it
    (muster.autoscaler.compute.node_templates).
    """

    templates: Sequence[gcp.compute.InstanceTemplate]
    templates_metadata: pulumi.Output[dict[str, object]]

    def __init__(
        self, name: str, *, args: NodeSetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:NodeSet", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        self.templates = [
            gcp.compute.InstanceTemplate(
                # The first one has no number: a way that is added behind it replaces nothing.
                f"{name}-template-{number}" if number else f"{name}-template",
                instance_template(args, way),
                inside,
            )
            for number, way in enumerate(args.nodes.ways)
        ]
        NodeSweeper(f"{name}-sweeper", names=args.names, node_set=args.node_set, opts=inside)
        template_names = pulumi.Output.all(*[template.name for template in self.templates])
        self.templates_metadata = template_names.apply(
            lambda names: templates_metadata(args, names)
        )
        self.register_outputs({"templates": template_names})


def instance_template(args: NodeSetArgs, way: Way) -> gcp.compute.InstanceTemplateArgs:
    """Return the template of nodes that are created in one way.

    Where the set is compact, the autoscaler adds the placement policy of their job.
    """
    names, nodes = args.names, args.nodes
    labels = nodes.labels | names.labels(NODE, **{NODE_SET_LABEL: args.node_set})
    return gcp.compute.InstanceTemplateArgs(
        # The provider adds digits to the name, so that a new template is created before the old
        # one is deleted.
        name_prefix=names.template_prefix(args.node_set),
        machine_type=way.machine_type,
        disks=[
            gcp.compute.InstanceTemplateDiskArgs(
                boot=True,
                auto_delete=True,
                source_image=args.image,
                disk_size_gb=nodes.disk.size_gib,
                disk_type=nodes.disk.type,
                labels=labels,
            ),
            *[local_ssd() for _ in range(nodes.local_ssds)],
        ],
        network_interfaces=[
            gcp.compute.InstanceTemplateNetworkInterfaceArgs(
                subnetwork=args.subnet, nic_type="GVNIC"
            )
        ],
        service_account=gcp.compute.InstanceTemplateServiceAccountArgs(
            email=args.account, scopes=[vm.CLOUD_PLATFORM]
        ),
        guest_accelerators=accelerators(way),
        metadata=vm.metadata(
            names,
            NODE,
            **{
                "muster-hosts": args.hosts,
                "muster-mounts": json.dumps(list(args.mounts)),
                "muster-people": args.people,
                **({"muster-images": args.images} if args.images else {}),
                **({"muster-gpus": str(nodes.gpus.count)} if nodes.gpus else {}),
                **cache(args, way),
            },
        ),
        labels=labels,
        scheduling=scheduling(nodes, way),
        shielded_instance_config=shielded(nodes),
    )


def accelerators(way: Way) -> list[gcp.compute.InstanceTemplateGuestAcceleratorArgs] | None:
    """Return the GPUs to attach, their type by name alone, as a template requires.

    https://cloud.google.com/compute/docs/reference/rest/v1/AcceleratorConfig
    """
    if not way.gpus:
        return None
    shape = known(way)
    return [gcp.compute.InstanceTemplateGuestAcceleratorArgs(type=shape.gpu_type, count=shape.gpus)]


def known(way: Way) -> MachineType:
    """Return the hardware of a node that is created in one way."""
    assert way.shape is not None  # noqa: S101 - a check refuses unknown machine types
    return way.shape


def local_ssd() -> gcp.compute.InstanceTemplateDiskArgs:
    """Return a disk that lives as long as its VM; the provider requires its only possible size.

    https://cloud.google.com/compute/docs/disks/add-local-ssd
    """
    return gcp.compute.InstanceTemplateDiskArgs(
        type="SCRATCH",
        disk_type="local-ssd",
        disk_size_gb=local_ssds.GIB,
        interface="NVME",
        boot=False,
        auto_delete=True,
    )


def cache(args: NodeSetArgs, way: Way) -> dict[str, str]:
    """Return the metadata by which a node caches on its local SSDs, where a folder is cached."""
    return {"muster-local-ssds": str(args.nodes.local_ssds_of(way))} if args.caches else {}


def templates_metadata(args: NodeSetArgs, templates: Sequence[str]) -> dict[str, object]:
    """Return the ways to create a node in the order in which they are tried, each in all zones."""
    choices = [
        {
            "template": f"projects/{args.names.project}/global/instanceTemplates/{name}",
            "zone": zone,
            "machine_type": way.machine_type,
            "spot": way.spot,
            **({"gpus": way.gpus} if way.gpus else {}),
        }
        for name, way in zip(templates, args.nodes.ways, strict=True)
        for zone in args.zones
    ]
    return {"choices": choices, "compact": args.nodes.compact}


def shielded(nodes: VirtualMachines) -> dict[str, bool]:
    """Return what is checked when a VM boots.

    A driver that is built on the image has no signature that the firmware knows:
    https://cloud.google.com/compute/docs/gpus/install-drivers-gpu#secure-boot
    """
    return vm.SHIELDED | ({"enable_secure_boot": False} if nodes.gpus else {})


def scheduling(nodes: VirtualMachines, way: Way) -> dict[str, object]:
    """Return how Google treats the VMs.

    A VM is never restarted automatically: SLURM has given up its node by then.
    """
    if way.spot:
        return {
            "preemptible": True,
            "provisioning_model": "SPOT",
            "instance_termination_action": "DELETE",
            "on_host_maintenance": "TERMINATE",
            "automatic_restart": False,
        }
    # https://cloud.google.com/compute/docs/instances/use-compact-placement-policies#restrictions
    moves = "TERMINATE" if nodes.compact else known(way).on_host_maintenance
    return {"on_host_maintenance": moves, "automatic_restart": False}
