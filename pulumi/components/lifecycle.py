"""The first and the last step of a cluster, and the wait for a VM that configures itself."""

from dataclasses import dataclass

import pulumi
from pulumi import dynamic

from muster.gcp.dynamic_resources import (
    ClaimProvider,
    FirstBootProvider,
    NodeSweeperProvider,
    SweeperProvider,
)
from muster.gcp.names import Names


class Claim(dynamic.Resource, module="muster", name="Claim"):
    """The cluster's name in the project, which no other cluster has."""

    suffix: pulumi.Output[str]
    """Six hexadecimal digits that no other claim has."""

    def __init__(
        self, name: str, *, names: Names, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {"project": names.project, "cluster": names.cluster, "suffix": None}
        super().__init__(ClaimProvider(), name, props, opts)


class Sweeper(dynamic.Resource, module="muster", name="Sweeper"):
    """Deletes on a destroy what is not in Pulumi's state: nodes, what a killed build left.

    It is created after the network and before image and controller. So a destroy deletes first the
    controller, which would recreate nodes, then nodes, images and disks, then the rest.
    """

    def __init__(
        self, name: str, *, names: Names, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {"project": names.project, "cluster": names.cluster}
        super().__init__(SweeperProvider(), name, props, opts)


class NodeSweeper(dynamic.Resource, module="muster", name="NodeSweeper"):
    """Deletes the nodes of a set that is no longer in the definition.

    `pulumi up` deletes last: then the controller has applied the change, and the set's jobs have
    ended. The controller itself may no longer delete these nodes.
    """

    def __init__(
        self,
        name: str,
        *,
        names: Names,
        node_set: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {"project": names.project, "cluster": names.cluster, "node_set": node_set}
        super().__init__(NodeSweeperProvider(), name, props, opts)


@dataclass(frozen=True, kw_only=True)
class FirstBootArgs:
    """Which VM is waited for."""

    names: Names
    zone: str
    name: str
    instance_id: pulumi.Input[str]
    """Google's number of the VM; a recreated VM has another one."""
    bundle: str
    """sha256 of the machine bundle."""


class FirstBoot(dynamic.Resource, module="muster", name="FirstBoot"):
    """Created when a VM has applied a bundle; updated when the VM gets another one."""

    def __init__(
        self, name: str, *, args: FirstBootArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {
            "project": args.names.project,
            "zone": args.zone,
            "name": args.name,
            "instance_id": args.instance_id,
            "bundle": args.bundle,
        }
        super().__init__(FirstBootProvider(), name, props, opts)
