"""Who reaches a VM through Google's Identity-Aware Proxy."""

from collections.abc import Iterable

import pulumi
import pulumi_gcp as gcp

TUNNEL = "roles/iap.tunnelResourceAccessor"


def grant_iap_access(
    vm: gcp.compute.Instance,
    name: str,
    *,
    people: Iterable[str],
    viewer_role: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Let people, as members such as `user:ada@example.org`, reach a VM.

    `name` is the VM's name in the program, `viewer_role` the role with permissions.REACHES.
    """
    for person in people:
        gcp.iap.TunnelInstanceIAMMember(
            f"{name}-{person}",
            instance=vm.name,
            zone=vm.zone,
            role=TUNNEL,
            member=person,
            opts=opts,
        )
        gcp.compute.InstanceIAMMember(
            f"{name}-{person}-sees",
            instance_name=vm.name,
            zone=vm.zone,
            role=viewer_role,
            member=person,
            opts=opts,
        )
