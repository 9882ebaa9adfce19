"""The disks that outlive the controller: queue, database and ssh host keys, and each folder."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from muster.definition.schema.cloud import STATE as STATE_DISK
from muster.definition.schema.node_sets import Disk
from muster.gcp.names import CLUSTER_LABEL, FOLDER, SLURM_LABEL, STATE, Names, slurm_label

KEPT_DAYS = 7
"""Days that a daily snapshot is kept, even after the disk is deleted."""


@dataclass(frozen=True, kw_only=True)
class StateArgs:
    """The disks' settings."""

    names: Names
    zone: str
    region: str
    disks: Mapping[str, Disk]
    """By what they hold: `state`, or the key of a folder."""
    slurm_version: str


class State(pulumi.ComponentResource):
    """The disks, and the schedule of their snapshots.

    They are protected: `pulumi destroy` is refused until `pulumi state unprotect` was run.
    """

    links: dict[str, pulumi.Output[str]]
    """Of the disks, by what they hold."""

    def __init__(
        self, name: str, *, args: StateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:State", name, None, opts)
        names = args.names
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
        self.links = {}
        for key, wanted in args.disks.items():
            release = {SLURM_LABEL: slurm_label(args.slurm_version)}
            disk = gcp.compute.Disk(
                f"disk-{key}",
                name=names.disk(key),
                zone=args.zone,
                size=wanted.size_gib,
                type=wanted.type,
                labels=(
                    names.labels(STATE, **release) if key == STATE_DISK else names.labels(FOLDER)
                ),
                opts=pulumi.ResourceOptions(parent=self, protect=True),
            )
            self.links[key] = disk.self_link
            gcp.compute.DiskResourcePolicyAttachment(
                f"snapshots-of-{key}",
                name=schedule.name,
                disk=disk.name,
                zone=args.zone,
                opts=inside,
            )
        self.register_outputs({"disks": self.links})
