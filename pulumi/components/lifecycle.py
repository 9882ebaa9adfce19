"""What begins and ends a cluster, and the wait for a VM that configures itself."""

from dataclasses import dataclass

import pulumi
from pulumi import dynamic

from muster.gcp.dynamic import ClaimProvider, FirstBootProvider, SweeperProvider
from muster.gcp.names import Names


class Claim(dynamic.Resource, module="muster", name="Claim"):
    """The cluster's name in the project, which no other cluster has."""

    suffix: pulumi.Output[str]
    """Six hexadecimal digits that no other claim has."""

    def __init__(self, name: str, names: Names, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"project": names.project, "cluster": names.cluster, "suffix": None}
        super().__init__(ClaimProvider(), name, props, opts)


class Sweeper(dynamic.Resource, module="muster", name="Sweeper"):
    """Removes what no state knows when the cluster is destroyed: SLURM's nodes, a killed build's.

    Made after the network and before image and controller, so that a destroy takes first the
    controller, which would make nodes anew, then nodes, images and disks, then the rest.
    """

    def __init__(self, name: str, names: Names, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"project": names.project, "cluster": names.cluster}
        super().__init__(SweeperProvider(), name, props, opts)


@dataclass(frozen=True)
class FirstBootArgs:
    """Which VM is waited for."""

    names: Names
    zone: str
    name: str
    instance_id: pulumi.Input[str]
    """Google's number of the VM, which one that is made anew doesn't keep."""
    bundle: str
    """sha256 of the machine bundle."""


class FirstBoot(dynamic.Resource, module="muster", name="FirstBoot"):
    """There when a VM has applied a bundle; changed when it has another one to apply."""

    def __init__(
        self, name: str, args: FirstBootArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {
            "project": args.names.project,
            "zone": args.zone,
            "name": args.name,
            "instance_id": args.instance_id,
            "bundle": args.bundle,
        }
        super().__init__(FirstBootProvider(), name, props, opts)
