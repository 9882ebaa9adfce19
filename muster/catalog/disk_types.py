"""Types of disks that a machine series takes.

Sources: the tables "Machine series support" of https://cloud.google.com/compute/docs/disks and of
https://cloud.google.com/compute/docs/disks/hyperdisks. Of Hyperdisk only `hyperdisk-balanced` can
be a boot disk.
"""

_PERSISTENT = ("pd-standard", "pd-balanced", "pd-ssd")
_OF_SERIES = {
    "a3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "c3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "g2": ("pd-balanced", "pd-ssd"),
    "h3": ("pd-balanced", "hyperdisk-balanced"),
}


def of_series(series: str) -> tuple[str, ...]:
    """Return the types of boot disks that VMs of a machine series, such as n1, take."""
    return _OF_SERIES.get(series, _PERSISTENT)
