"""Local SSDs of VMs of Google Compute Engine: how many a machine type can have, or always has.

Source: https://cloud.google.com/compute/docs/disks/local-ssd#choose_number_local_ssds, its two
tables of 2026-04-14, for the types of muster.catalog.machine_types.
"""

GIB = 375
"""Size of one, for all of these types."""

_BUILT_IN = {
    "a2-ultragpu-1g": 1,
    "a2-ultragpu-2g": 2,
    "a2-ultragpu-4g": 4,
    "a2-ultragpu-8g": 8,
    "a3-highgpu-8g": 16,
}
_OF_ONE_TYPE = {
    "a2-highgpu-1g": (1, 2, 4, 8),
    "a2-highgpu-2g": (2, 4, 8),
    "a2-highgpu-4g": (4, 8),
    "a2-highgpu-8g": (8,),
    "a2-megagpu-16g": (8,),
    "g2-standard-4": (1,),
    "g2-standard-8": (1,),
    "g2-standard-12": (1,),
    "g2-standard-16": (1,),
    "g2-standard-24": (2,),
    "g2-standard-32": (1,),
    "g2-standard-48": (4,),
    "g2-standard-96": (8,),
}
_OF_SERIES = {
    "n1": (*range(1, 9), 16, 24),
    "n2": (1, 2, 4, 8, 16, 24),
    "n2d": (1, 2, 4, 8, 16, 24),
    "c2": (1, 2, 4, 8),
    "c2d": (1, 2, 4, 8),
}
# Series -> CPUs -> the lowest number for types with up to that many CPUs.
_FEWEST = {
    "n1": {96: 1},
    "n2": {10: 1, 20: 2, 40: 4, 80: 8, 128: 16},
    "n2d": {16: 1, 48: 2, 80: 4, 224: 8},
    "c2": {8: 1, 16: 2, 30: 4, 60: 8},
    "c2d": {16: 1, 32: 2, 56: 4, 112: 8},
}


def built_in(machine_type: str) -> int:
    """Return how many each VM of a machine type has, whatever is asked for."""
    return _BUILT_IN.get(machine_type, 0)


def numbers(machine_type: str, cpus: int) -> tuple[int, ...]:
    """Return how many a VM may be given; empty: none, or they are built in."""
    if machine_type in _OF_ONE_TYPE:
        return _OF_ONE_TYPE[machine_type]
    series = machine_type.partition("-")[0]
    fewest = next((least for most, least in _FEWEST.get(series, {}).items() if cpus <= most), 0)
    return tuple(number for number in _OF_SERIES.get(series, ()) if number >= fewest)
