"""The regions and zones: some of https://cloud.google.com/compute/docs/regions-zones."""

REGIONS: dict[str, tuple[str, ...]] = {
    region: tuple(f"{region}-{letter}" for letter in letters)
    for region, letters in {
        "asia-east1": "abc",
        "europe-west1": "bcd",
        "europe-west3": "abc",
        "europe-west4": "abc",
        "us-central1": "abcf",
        "us-east1": "bcd",
        "us-west1": "abc",
    }.items()
}

ANY_ZONE = "-"
"""Instead of a zone in the path of imageFamilyViews: the caller has none in mind."""


def region_of(zone: str) -> str:
    """europe-west4-a -> europe-west4."""
    return zone.rpartition("-")[0]
