"""Compute Engine. Importing this package registers its handlers."""

from muster_sandbox.fakecloud.services.compute import (
    addresses,
    bulk,
    catalog,
    disks,
    iam,
    images,
    instances,
    lifecycle,
    networks,
    operations,
    policies,
    templates,
)

__all__ = [
    "addresses",
    "bulk",
    "catalog",
    "disks",
    "iam",
    "images",
    "instances",
    "lifecycle",
    "networks",
    "operations",
    "policies",
    "templates",
]
