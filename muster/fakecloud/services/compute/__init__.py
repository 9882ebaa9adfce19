"""Compute Engine. Importing this package registers its handlers."""

from muster.fakecloud.services.compute import (
    addresses,
    catalog,
    disks,
    iam,
    images,
    networks,
    operations,
    policies,
    templates,
)

__all__ = [
    "addresses",
    "catalog",
    "disks",
    "iam",
    "images",
    "networks",
    "operations",
    "policies",
    "templates",
]
