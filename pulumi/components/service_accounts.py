"""The identities of the VMs: one service account a role; role_bindings.py says what each may do."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from muster.gcp.names import BUILDER, CONTROLLER, LOGIN, NODE, Names


@dataclass(frozen=True, kw_only=True)
class ServiceAccountsArgs:
    """What the accounts are named after."""

    names: Names


class ServiceAccounts(pulumi.ComponentResource):
    """Service accounts of controller, login nodes, nodes and image builder."""

    controller: gcp.serviceaccount.Account
    login: gcp.serviceaccount.Account
    node: gcp.serviceaccount.Account
    builder: gcp.serviceaccount.Account

    def __init__(
        self, name: str, *, args: ServiceAccountsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:ServiceAccounts", name, None, opts)

        def account(role: str, what: str) -> gcp.serviceaccount.Account:
            return gcp.serviceaccount.Account(
                f"{name}-{role}",
                account_id=args.names.account(role),
                display_name=f"{what} of the cluster {args.names.cluster}",
                opts=pulumi.ResourceOptions(parent=self),
            )

        self.controller = account(CONTROLLER, "Controller")
        self.login = account(LOGIN, "Login nodes")
        self.node = account(NODE, "Nodes")
        self.builder = account(BUILDER, "Image builder")
        self.register_outputs({})
