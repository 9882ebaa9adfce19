"""Checks of FS-Cache: what is cached, and on which disk."""

from collections.abc import Iterator

from muster.definition.checks.cloud_machines import vms
from muster.definition.checks.paths import is_disk, is_well_formed
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema.storage import KERNELS, POOR_CACHE, Cache

# fmt: off
table(
    Spelling("cache-device",
        "A disk for the cache that is no device file of a disk",
        at("storage.cache.device"), lambda path: is_disk(path) or not is_well_formed(path),
        '"{value}" is no disk',
        "write it as /dev/disk/by-id/... or /dev/nvme1n1"),
)
# fmt: on


def _cached(d: Definition) -> Iterator[str]:
    """The keys of the folders that hosts mount and nodes cache."""
    for key, folder in d.cluster.storage.mounted().items():
        if folder.cached:
            yield key


@check("home-cached")
def home_cached(d: Definition) -> Iterator[Finding]:
    """A cache for a folder in which everybody writes."""
    if d.cluster.storage.home.cached:
        yield Finding(
            ("storage", "home", "cached"),
            "everybody writes in homes, and what is written leaves the cache at once",
            "cache what is read many times: apps, models, data",
        )


@check("cache-on-poor-kernel")
def cache_on_poor_kernel(d: Definition) -> Iterator[Finding]:
    """FS-Cache on a kernel with known faults in it, without `any_kernel: true`."""
    kernel = KERNELS[d.cluster.os]
    if kernel not in POOR_CACHE or d.cluster.storage.cache.any_kernel:
        return
    for key in _cached(d):
        yield Finding(
            ("storage", key, "cached"),
            f"kernel {kernel} of {d.cluster.os} {POOR_CACHE[kernel]}",
            "leave it out, install Debian 13, or say `any_kernel: true` in `storage.cache` "
            "where you know better",
        )


@check("cache-in-the-cloud")
def cache_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """A cache in the cloud, and no node has a disk for it."""
    if d.cluster.cloud is not None and not any(nodes.caches for _, nodes in vms(d)):
        for key in _cached(d):
            yield Finding(
                ("storage", key, "cached"),
                "no node set has local SSDs, and nodes in the cloud cache on nothing else",
                "say `local_ssds` of the node sets that read it, or leave it out",
            )


@check("cache-disk-in-the-cloud")
def cache_disk_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """The disk of a cache named for nodes that have local SSDs for it."""
    for key in ("device", "size_gib"):
        if d.cluster.cloud is not None and key in d.cluster.storage.cache.model_fields_set:
            yield Finding(
                ("storage", "cache", key),
                "nodes in the cloud cache on their local SSDs, so this has no effect here",
                "take it out, and say `local_ssds` of node sets",
            )


@check("cache-size-of-device")
def cache_size_of_device(d: Definition) -> Iterator[Finding]:
    """The size of a cache file, and a disk for the cache."""
    cache = d.cluster.storage.cache
    # In the cloud both are refused.
    if d.cluster.cloud is None and cache.device and "size_gib" in cache.model_fields_set:
        yield Finding(
            ("storage", "cache", "size_gib"),
            f"all of {cache.device} is the cache, so this has no effect here",
            "take out one of the two; without `device` it is the size of a file on the root disk",
        )


@check("local-ssds-without-cache")
def local_ssds_without_cache(d: Definition) -> Iterator[Finding]:
    """Local SSDs that cost money and are not used."""
    for name, nodes in vms(d):
        if nodes.local_ssds and not list(_cached(d)):
            yield Finding(
                ("nodes", name, "local_ssds"),
                "no folder is cached, and nodes use local SSDs for nothing else",
                "say `cached: true` of apps, models or data, or take it out",
            )


@check("cache-without-folder")
def cache_without_folder(d: Definition) -> Iterator[Finding]:
    """A disk for a cache, and no folder that is cached."""
    storage = d.cluster.storage
    if storage.cache != Cache() and not any(folder.cached for _, folder in storage.folders()):
        yield Finding(
            ("storage", "cache"),
            "no folder is cached",
            "say `cached: true` of apps, models or data, or take `cache` out",
        )
