"""Imports each module that maps resource types, which registers them."""

from double import iamresources, members, secretmanager, storage
from double.compute import disk, instance, network, router, template

__all__ = [
    "disk",
    "iamresources",
    "instance",
    "members",
    "network",
    "router",
    "secretmanager",
    "storage",
    "template",
]
