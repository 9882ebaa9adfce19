"""Who may do what: the controller creates and deletes the cluster's own nodes; people see VMs."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from muster.gcp.names import Names
from muster.gcp.service_account_permissions import REACHES, USES, in_project


@dataclass(frozen=True, kw_only=True)
class RightsArgs:
    """Who may do what where."""

    names: Names
    region: str
    suffix: pulumi.Input[str]
    """Makes the roles' ids unique: the id of a deleted role stays taken."""
    controller: pulumi.Input[str]
    """The controller's account as a member, `serviceAccount:EMAIL`."""
    node: pulumi.Input[str]
    """Name of the nodes' account, `projects/P/serviceAccounts/EMAIL`."""
    subnet: pulumi.Input[str]
    """Name of the subnet."""
    node_sets: Sequence[str]
    """Node sets of VMs."""
    places: bool
    """Whether nodes are placed compactly."""


class Rights(pulumi.ComponentResource):
    """Custom roles and their bindings.

    `reaches` is the role of people who reach a VM; it is granted on that VM: iap_permissions.py.
    """

    reaches: pulumi.Output[str]

    def __init__(
        self, name: str, *, args: RightsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:Rights", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        # The provider would delete a grant first when its condition changes (DeleteBeforeReplace in
        # its resources.go), and the controller had no rights until Google knows the new one.
        until_new = pulumi.ResourceOptions(parent=self, delete_before_replace=False)
        names = args.names

        def role(purpose: str, title: str, permissions: Sequence[str]) -> pulumi.Output[str]:
            suffix = pulumi.Output.from_input(args.suffix)
            made = gcp.projects.IAMCustomRole(
                f"{name}-{purpose}-role",
                role_id=suffix.apply(lambda text: names.custom_role(purpose, text)),
                title=f"{names.cluster}: {title}",
                permissions=list(permissions),
                opts=inside,
            )
            path: pulumi.Output[str] = made.name
            return path

        for granted in in_project(names, args.node_sets, places=args.places):
            path = role(granted.purpose, granted.title, granted.permissions)
            for number, expression in enumerate(granted.conditions):
                # The first one has no number: a binding that is added behind it replaces nothing.
                suffix = f"-{number}" if number else ""
                title = f"{names.cluster}: {granted.purpose}{suffix}"
                gcp.projects.IAMMember(
                    f"{name}-{granted.purpose}{suffix}",
                    project=names.project,
                    role=path,
                    member=args.controller,
                    condition={"title": title, "expression": expression} if expression else None,
                    opts=until_new,
                )
        uses = role("uses", "puts nodes into its subnet, under their account", USES)
        gcp.compute.SubnetworkIAMMember(
            f"{name}-subnet",
            subnetwork=args.subnet,
            region=args.region,
            project=names.project,
            role=uses,
            member=args.controller,
            opts=inside,
        )
        gcp.serviceaccount.IAMMember(
            f"{name}-acts-as-node",
            service_account_id=args.node,
            role=uses,
            member=args.controller,
            opts=inside,
        )
        self.reaches = role("reaches", "sees a VM that it reaches through IAP", REACHES)
        self.register_outputs({})
