import re

import pytest

from muster.catalog.machine_types import machine_types
from muster.catalog.prices import prices

# As Google lists them; docs/cloud.md has the first.
LISTED = [
    ("n1-standard-2", "europe-west4-a", False, 0.1046),
    ("n1-standard-4", "europe-west4-b", False, 0.2092),
    ("n1-standard-1", "us-central1-f", False, 0.0475),
    ("e2-micro", "us-central1-a", False, 0.00838),
    ("a2-highgpu-1g", "us-central1-a", False, 3.6734),
]


@pytest.mark.parametrize(("machine_type", "zone", "spot", "price"), LISTED)
def test_a_price_is_google_s(machine_type, zone, spot, price):
    assert prices().per_hour(machine_type, zone, spot=spot) == pytest.approx(price, rel=0.002)


def test_spot_costs_less_than_on_demand_for_every_type_and_region():
    table = prices()
    assert len(table.regions) > 40
    for region, row in table.regions.items():
        for name, (full, spot) in row.items():
            assert 0 < spot < full, (region, name)


def test_every_machine_type_has_a_price_somewhere():
    table = prices()
    without = [
        machine_type
        for machine_type in machine_types()
        if table.per_hour(machine_type, "us-central1-a", spot=False) is None
    ]
    assert without == []


def test_what_is_not_known_has_no_price():
    assert prices().per_hour("n9-standard-4", "europe-west4-a", spot=False) is None
    assert prices().per_hour("n1-standard-5", "europe-west4-a", spot=False) is None
    assert prices().per_hour("n1-standard-4", "moon-west1-a", spot=False) is None
    assert prices().per_hour("", "", spot=False) is None


def test_the_prices_are_of_a_day():
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", prices().date)
