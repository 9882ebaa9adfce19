"""Compute Engine. Importing this package registers its handlers."""

from muster.fakecloud.services.compute import (
    addresses,
    catalog,
    disks,
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
    "images",
    "networks",
    "operations",
    "policies",
    "templates",
]
