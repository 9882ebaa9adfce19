"""The VM that runs slurmctld, slurmdbd and MariaDB and serves the shared folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from components import vm
from components.iap_permissions import grant_iap_access
from components.lifecycle import FirstBoot, FirstBootArgs
from muster.definition.schema.cloud import Controller as Wanted
from muster.gcp.names import CONTROLLER, Names


@dataclass(frozen=True, kw_only=True)
class ControllerArgs:
    """The VM's settings, its metadata, and who reaches it."""

    names: Names
    zone: str
    wanted: Wanted
    address: pulumi.Input[str]
    subnet: pulumi.Input[str]
    """Link of the subnet."""
    account: pulumi.Input[str]
    """Email of its account."""
    disks: Mapping[str, pulumi.Input[str]]
    """Device name -> link of the disks that outlive the VM."""
    bundle: str
    """Address of the machine bundle."""
    digest: str
    """sha256 of the machine bundle."""
    hosts: pulumi.Input[str]
    """JSON: host name -> address, of hosts whose address is fixed."""
    templates: Mapping[str, pulumi.Input[dict[str, object]]]
    """Node set -> its template and zones."""
    admins: Sequence[str]
    """Who may reach it through IAP, as members."""
    reaches: pulumi.Input[str]
    """Name of the role that lets them see the VM."""


class Controller(pulumi.ComponentResource):
    """The controller's VM, complete when its first boot is over."""

    instance: gcp.compute.Instance

    def __init__(
        self, name: str, *, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:Controller", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        names = args.names
        self.instance = gcp.compute.Instance(
            name,
            name=names.controller,
            zone=args.zone,
            machine_type=args.wanted.machine_type,
            allow_stopping_for_update=True,
            boot_disk=vm.boot_disk(names, CONTROLLER, args.wanted.disk),
            attached_disks=[
                {"source": link, "device_name": device} for device, link in args.disks.items()
            ],
            network_interfaces=[
                {"subnetwork": args.subnet, "network_ip": args.address, "nic_type": "GVNIC"}
            ],
            service_account={"email": args.account, "scopes": [vm.CLOUD_PLATFORM]},
            metadata=vm.metadata(
                names,
                CONTROLLER,
                **{
                    "muster-bundle": args.bundle,
                    "muster-hosts": args.hosts,
                    "muster-templates": pulumi.Output.json_dumps(
                        dict(args.templates), sort_keys=True
                    ),
                },
            ),
            labels=names.labels(CONTROLLER),
            scheduling={
                "on_host_maintenance": vm.on_host_maintenance(args.wanted.machine_type),
                "automatic_restart": True,
            },
            shielded_instance_config=vm.SHIELDED,
            # Also by `pulumi up --replace`: two VMs can't have the same name.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        grant_iap_access(
            self.instance, name, people=args.admins, viewer_role=args.reaches, opts=inside
        )
        FirstBoot(
            f"{name}-configured",
            args=FirstBootArgs(
                names=names,
                zone=args.zone,
                name=names.controller,
                instance_id=self.instance.instance_id,
                bundle=args.digest,
            ),
            opts=inside,
        )
        self.register_outputs({"instance": self.instance.self_link})
