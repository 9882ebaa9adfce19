"""Zones: names as Google gives them, and none that Muster uses elsewhere is missing."""

import re

from muster.catalog.prices import prices
from muster.catalog.zones import REGIONS, ZONES


def test_a_zone_is_its_region_and_a_letter() -> None:
    for region, zones in REGIONS.items():
        assert re.fullmatch(r"[a-z]+-[a-z]+[0-9]+", region)
        assert [zone for zone in zones if not re.fullmatch(f"{region}-[a-f]", zone)] == []
        assert len(zones) >= 3


def test_zones_of_regions_with_other_letters() -> None:
    assert REGIONS["us-east1"] == ("us-east1-b", "us-east1-c", "us-east1-d")
    assert REGIONS["europe-west1"] == ("europe-west1-b", "europe-west1-c", "europe-west1-d")
    assert "us-central1-f" in ZONES
    assert "us-central1-d" not in ZONES


def test_regions_with_prices_are_known() -> None:
    assert set(prices().regions) <= set(REGIONS)
