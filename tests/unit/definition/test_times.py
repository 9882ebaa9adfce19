"""SLURM's notation of time limits: sbatch(1), --time."""

import pytest

from muster.definition.schema import times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("04:00:00", 14400),
        ("5-00:00:00", 432000),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("UNLIMITED", float("inf")),
        ("infinite", float("inf")),
    ],
)
def test_a_time_is_read_as_slurm_reads_it(text: str, seconds: float) -> None:
    assert times.seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "1d", "5 days", "1:2:3:4", "1-", "-1", "1-2-3", "04.00", "∞", "١٢", "9" * 5000]
)
def test_what_slurm_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(times.TimeError):
        times.seconds(text)
