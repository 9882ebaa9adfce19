"""Types of disks that a machine series takes.

The tables "Machine series support" of https://cloud.google.com/compute/docs/disks and of
https://cloud.google.com/compute/docs/disks/hyperdisks have them; this one is not compared with
Google's answers yet. Of Hyperdisk only `hyperdisk-balanced` can be a boot disk.
"""

_PERSISTENT = ("pd-standard", "pd-balanced", "pd-ssd")
SERIES = {
    "a3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "c3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "g2": ("pd-balanced", "pd-ssd"),
    "h3": ("pd-balanced", "hyperdisk-balanced"),
}
"""Series that don't take just the three types of Persistent Disk."""


def of_series(series: str) -> tuple[str, ...]:
    """Return the types of boot disks that VMs of a machine series, such as n1, take."""
    return SERIES.get(series, _PERSISTENT)
