"""What a VM costs per hour: Google's list prices of one day, which is in prices.json.

An estimate, no bill: discounts are not in it, spot prices change once a month, and disks, network
and licences are extra (https://cloud.google.com/compute/vm-instance-pricing).
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from muster.catalog.machine_types import machine_types

_FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True)
class Prices:
    """The table."""

    date: str
    """The day of the prices."""
    regions: dict[str, dict[str, tuple[float, float]]]
    """Region -> machine type, or line of them for one CPU -> on demand, spot."""

    def per_hour(self, machine_type: str, zone: str, *, spot: bool) -> float | None:
        """Return US dollars per hour; None where no price is known."""
        row = self.regions.get(zone.rpartition("-")[0], {})
        if machine_type in row:
            return row[machine_type][spot]
        line = row.get(machine_type.rpartition("-")[0])
        shape = machine_types().get(machine_type)
        return line[spot] * shape.cpus if line and shape else None


@cache
def prices() -> Prices:
    """Return the table."""
    table = json.loads(_FILE.read_text(encoding="utf-8"))
    return Prices(
        table["date"],
        {
            region: {name: (price[0], price[1]) for name, price in row.items()}
            for region, row in table["regions"].items()
        },
    )
