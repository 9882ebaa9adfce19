"""Compute Engine. Importing this package registers its handlers."""

from muster.fakecloud.services.compute import networks, operations

__all__ = ["networks", "operations"]
