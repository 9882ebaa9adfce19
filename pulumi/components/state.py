"""The disk that outlives the controller: queue, database, /home, /apps, ssh host keys."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from muster.definition.schema.node_sets import Disk
from muster.gcp.names import CLUSTER_LABEL, SLURM_LABEL, STATE, Names, slurm_label

KEPT_DAYS = 7
"""Days that a daily snapshot is kept, even after the disk is deleted."""


@dataclass(frozen=True, kw_only=True)
class StateArgs:
    """The disk's settings."""

    names: Names
    zone: str
    region: str
    disk: Disk
    slurm_version: str


class State(pulumi.ComponentResource):
    """The state disk and the schedule of its snapshots.

    The disk is protected: `pulumi destroy` is refused until `pulumi state unprotect` was run.
    """

    disk: gcp.compute.Disk

    def __init__(
        self, name: str, *, args: StateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:State", name, None, opts)
        names = args.names
        self.disk = gcp.compute.Disk(
            name,
            name=names.state_disk,
            zone=args.zone,
            size=args.disk.size_gib,
            type=args.disk.type,
            labels=names.labels(STATE, **{SLURM_LABEL: slurm_label(args.slurm_version)}),
            opts=pulumi.ResourceOptions(parent=self, protect=True),
        )
        inside = pulumi.ResourceOptions(parent=self)
        schedule = gcp.compute.ResourcePolicy(
            f"{name}-snapshots",
            name=names.snapshots,
            region=args.region,
            snapshot_schedule_policy={
                "schedule": {"daily_schedule": {"days_in_cycle": 1, "start_time": "03:00"}},
                "retention_policy": {
                    "max_retention_days": KEPT_DAYS,
                    "on_source_disk_delete": "APPLY_RETENTION_POLICY",
                },
                "snapshot_properties": {"labels": {CLUSTER_LABEL: names.cluster}},
            },
            opts=inside,
        )
        gcp.compute.DiskResourcePolicyAttachment(
            f"{name}-snapshots-of-disk",
            name=schedule.name,
            disk=self.disk.name,
            zone=args.zone,
            opts=inside,
        )
        self.register_outputs({"disk": self.disk.self_link})
