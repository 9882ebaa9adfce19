"""Zones of Google Cloud.

A committed table, because the definition is checked without access to a cloud. The regions are
those for which there are prices on 2026-07-30 (prices.json). The letters are not compared with
`gcloud compute zones list` yet; https://cloud.google.com/compute/docs/regions-zones has them. AI
zones such as us-west4-ai2b are left out: they have no ordinary machine types.
"""

_USUAL = "abc"
_REGIONS = {
    "africa": ("south1",),
    "asia": (
        *("east1", "east2", "northeast1", "northeast2", "northeast3", "south1", "south2"),
        *("southeast1", "southeast2", "southeast3"),
    ),
    "australia": ("southeast1", "southeast2"),
    "europe": (
        *("central2", "north1", "north2", "southwest1", "west1", "west2", "west3", "west4"),
        *("west6", "west8", "west9", "west10", "west12"),
    ),
    "me": ("central1", "central2", "west1"),
    "northamerica": ("northeast1", "northeast2", "south1"),
    "southamerica": ("east1", "west1"),
    "us": (*("central1", "east1", "east4", "east5", "south1", "west1", "west2", "west3", "west4"),),
}
_OTHERS = {"europe-west1": "bcd", "us-central1": "abcf", "us-east1": "bcd"}
"""Regions whose zones have other letters."""

REGIONS = {
    region: tuple(f"{region}-{letter}" for letter in _OTHERS.get(region, _USUAL))
    for continent, places in _REGIONS.items()
    for region in (f"{continent}-{place}" for place in places)
}
"""Region -> its zones."""

ZONES = frozenset(zone for zones in REGIONS.values() for zone in zones)
"""All zones."""
