"""A VM that people log in to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp

from components import vm
from components.entrance import let_in
from components.lifecycle import FirstBoot, FirstBootArgs
from muster.definition.schema.cloud import Login as Wanted
from muster.gcp.names import LOGIN, Names


@dataclass(frozen=True)
class LoginArgs:
    """What it is like, what it is told, and who reaches it."""

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
    """Name of the role of those who do."""


class Login(pulumi.ComponentResource):
    """One login VM, configured, and the right to reach it."""

    instance: gcp.compute.Instance

    def __init__(
        self, name: str, args: LoginArgs, opts: pulumi.ResourceOptions | None = None
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
            # By `pulumi up --replace` too: two of one name can't be.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        let_in(self.instance, name, args.users, args.reaches, inside)
        FirstBoot(
            f"{name}-configured",
            FirstBootArgs(names, args.zone, host, self.instance.instance_id, args.digest),
            inside,
        )
        self.register_outputs({"instance": self.instance.self_link})
