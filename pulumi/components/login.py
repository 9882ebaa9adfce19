"""A VM that people log in to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp

from components import vm
from components.iap_permissions import grant_iap_access
from components.lifecycle import FirstBoot, FirstBootArgs
from muster.definition.schema.cloud import Login as Wanted
from muster.gcp.names import LOGIN, Names


@dataclass(frozen=True, kw_only=True)
class LoginArgs:
    """The VM's settings, its metadata, and who reaches it."""

    names: Names
    number: int
    zone: str
    wanted: Wanted
    subnet: pulumi.Input[str]
    """Link of the subnet."""
    account: pulumi.Input[str]
    """Email of its account."""
    bundle: str
    """Address of the machine bundle."""
    digest: str
    """sha256 of the machine bundle."""
    hosts: pulumi.Input[str]
    """JSON: host name -> address, of hosts whose address is fixed."""
    users: Sequence[str]
    """Who may reach it through IAP, as members."""
    reaches: pulumi.Input[str]
    """Name of the role that lets them see the VM."""


class Login(pulumi.ComponentResource):
    """One login VM, complete when its first boot is over, and the right to reach it."""

    instance: gcp.compute.Instance

    def __init__(
        self, name: str, *, args: LoginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:Login", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        names = args.names
        host = names.login(args.number)
        public: dict[str, Any] = {"access_configs": [{}]} if args.wanted.public_address else {}
        self.instance = gcp.compute.Instance(
            name,
            name=host,
            zone=args.zone,
            machine_type=args.wanted.machine_type,
            allow_stopping_for_update=True,
            boot_disk=vm.boot_disk(names, LOGIN, args.wanted.disk),
            network_interfaces=[{"subnetwork": args.subnet, "nic_type": "GVNIC", **public}],
            service_account={"email": args.account, "scopes": [vm.CLOUD_PLATFORM]},
            metadata=vm.metadata(
                names, LOGIN, **{"muster-bundle": args.bundle, "muster-hosts": args.hosts}
            ),
            labels=names.labels(LOGIN),
            scheduling={
                "on_host_maintenance": vm.on_host_maintenance(args.wanted.machine_type),
                "automatic_restart": True,
            },
            shielded_instance_config=vm.SHIELDED,
            # Also by `pulumi up --replace`: two VMs can't have the same name.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        grant_iap_access(
            self.instance, name, people=args.users, viewer_role=args.reaches, opts=inside
        )
        FirstBoot(
            f"{name}-configured",
            args=FirstBootArgs(
                names=names,
                zone=args.zone,
                name=host,
                instance_id=self.instance.instance_id,
                bundle=args.digest,
            ),
            opts=inside,
        )
        self.register_outputs({"instance": self.instance.self_link})
