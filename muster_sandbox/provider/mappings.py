"""Imports each module that maps resource types, which registers them."""

from muster_sandbox.provider import iam_resources, members, secretmanager, storage
from muster_sandbox.provider.compute import disk, instance, network, router, template

__all__ = [
    "disk",
    "iam_resources",
    "instance",
    "members",
    "network",
    "router",
    "secretmanager",
    "storage",
    "template",
]
