"""10,000 waiting jobs of nine people: what sbatch and scheduler need, and who is still reached."""

from collections.abc import Iterator

import pytest
from accounted import accounted, for_release, lab_of_page
from full_queue import JOBS, Full

from muster_sandbox.containers import base_image

pytestmark = pytest.mark.proof("fills a queue and waits for passes of the scheduler on it")

TASKS = 5000
"""Of arrays, beside the jobs of their own."""
ENOUGH = 400
"""Jobs that a pass must have tried; Muster has SLURM try 50 of each of the nine."""
SECONDS = 75
"""Backfill begins a pass every 30 s, so this has two."""


@pytest.fixture(scope="module", params=list(base_image.RELEASES))
def full(request, tmp_path_factory) -> Iterator[Full]:
    page = lab_of_page("docs/limits.md", tmp_path_factory.mktemp("page"))
    definition = for_release(page, request.param, {})
    with accounted("muster-full-queue", request.param, definition) as emulation:
        yield Full(emulation, tasks=TASKS)


def test_ten_thousand_waiting_jobs(full, record_property):
    waiting = full.waiting()
    assert waiting >= JOBS + TASKS
    measured = full.measure(SECONDS)
    record_property(
        "measured",
        f"{full.lab.release}: {waiting} jobs wait, sbatch at most {measured.longest_sbatch:.2f} s, "
        f"scheduler at most {measured.scheduler:.2f} s, backfill at most {measured.backfill:.2f} "
        f"s, {measured.tried} jobs tried in a pass, small job started after "
        f"{measured.started or float('nan'):.0f} s",
    )
    assert measured.longest_sbatch <= 1
    assert measured.scheduler <= 1
    assert measured.backfill <= 5
    assert measured.started is not None, full.queue()
    # Or the bounds say nothing: SLURM tries no job for which there is no place in bf_window.
    assert measured.tried >= ENOUGH
