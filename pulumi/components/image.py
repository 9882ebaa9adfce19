"""The image of all VMs of the cluster; a VM builds a new one when its contents change."""

from dataclasses import dataclass

import pulumi
from pulumi import dynamic

from muster.gcp.dynamic_resources import ImageProvider
from muster.gcp.names import Names


@dataclass(frozen=True, kw_only=True)
class ImageArgs:
    """What it is built from, and by what."""

    names: Names
    zone: str
    os: str
    machine_type: str
    digest: str
    """sha256 of the image bundle: the image's identity."""
    archive: pulumi.Input[str]
    """Address of the image bundle."""
    subnet: pulumi.Input[str]
    """Id of the subnet."""
    account: pulumi.Input[str]
    """Email of the builder's account."""


class Image(dynamic.Resource, module="muster", name="Image"):
    """An image; a new digest creates a new one before the old one is deleted."""

    name: pulumi.Output[str]
    link: pulumi.Output[str]

    def __init__(
        self, name: str, *, args: ImageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {
            "project": args.names.project,
            "cluster": args.names.cluster,
            "zone": args.zone,
            "os": args.os,
            "machine_type": args.machine_type,
            "digest": args.digest,
            "archive": args.archive,
            "subnetwork": args.subnet,
            "account": args.account,
            "name": None,
            "link": None,
        }
        super().__init__(ImageProvider(), name, props, opts)
