"""Types of disks: the table knows each machine series, and the one that Muster itself uses."""

from typing import get_args

import pytest

from muster.catalog import disk_types
from muster.catalog.machine_types import machine_types
from muster.definition.schema.node_sets import Disk
from muster.gcp.builder_vm import DISK

SERIES = sorted({shape.series for shape in machine_types().values()})
TYPES = get_args(Disk.model_fields["type"].annotation)


@pytest.mark.parametrize("series", SERIES)
def test_each_series_takes_types_that_a_definition_can_name(series: str) -> None:
    assert set(disk_types.of_series(series)) <= set(TYPES)


@pytest.mark.parametrize("series", SERIES)
def test_each_series_takes_the_default_and_the_disk_on_which_an_image_is_built(series: str) -> None:
    assert {Disk().type, DISK.type} <= set(disk_types.of_series(series))


def test_each_type_is_taken_by_a_series() -> None:
    assert {name for series in SERIES for name in disk_types.of_series(series)} == set(TYPES)


def test_the_table_has_no_series_of_which_muster_knows_no_machine_type() -> None:
    assert set(disk_types.SERIES) <= set(SERIES)
