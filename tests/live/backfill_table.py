"""The table of docs/limits.md, "A queue of thousands": what entries of SchedulerParameters change.

Run: .venv/bin/pytest tests/live/backfill_table.py [-k bookworm | -k trixie]
As root, with podman; fifteen minutes a release. Prints the rows at the end. pytest runs this file
only if it is named.
"""

import os
import re
import time
from collections.abc import Iterator

import pytest
from accounted import accounted, for_release, lab_of_page
from emulation import wait_for
from full_queue import Full

from muster_sandbox.containers import base_image

SECONDS = 80
ALL = "bf_continue,bf_max_job_test=5000"
OF_A_USER = "bf_max_job_user=50"
MUSTER = "as Muster writes it"
ROWS = (
    "",
    "bf_continue",
    ALL,
    f"{ALL},bf_resolution=60",
    "bf_max_job_test=5000,bf_resolution=60",
    f"{ALL},bf_yield_interval=500000",
    f"{ALL},{OF_A_USER}",
    f"{ALL},{OF_A_USER},default_queue_depth=1000",
    f"bf_continue,bf_max_job_test=1000,{OF_A_USER}",
    MUSTER,
)
CONF = "/etc/slurm/slurm.conf"


@pytest.fixture(scope="module", params=list(base_image.RELEASES))
def full(request, tmp_path_factory) -> Iterator[Full]:
    page = lab_of_page("docs/limits.md", tmp_path_factory.mktemp("page"))
    definition = for_release(page, request.param, {})
    with accounted("muster-backfill", request.param, definition, seconds=3600) as emulation:
        yield Full(emulation, seconds=3600)


@pytest.fixture(scope="module")
def written(full: Full) -> dict[str, str]:
    """Return the entries of SchedulerParameters that Muster writes, by their name."""
    line = full.lab.run("grep", "^SchedulerParameters=", CONF).strip().partition("=")[2]
    return {entry.partition("=")[0]: entry for entry in line.split(",")}


def parameters(row: str, written: dict[str, str]) -> str:
    """Return the value of a row: with its window and resolution, but in the first row."""
    if row == MUSTER:
        return ",".join(written.values())
    names = [entry.partition("=")[0] for entry in row.split(",")]
    ahead = [written[name] for name in ("bf_window", "bf_resolution") if name not in names]
    return ",".join([row, *ahead]) if row else ""


@pytest.mark.parametrize("row", ROWS)
def test_row(full: Full, written: dict[str, str], row: str, record_property) -> None:
    value = parameters(row, written)
    # A parameter without a value is an error.
    line = f"SchedulerParameters={value}" if value else "#SchedulerParameters="
    full.lab.run("sed", "-i", f"s/^#*SchedulerParameters=.*/{line}/", CONF)
    full.lab.run("scontrol", "reconfigure")
    shown = ["scontrol", "show", "config"]
    holds = re.compile(rf"^SchedulerParameters += {re.escape(value) or '.null.'}$", re.M)
    wait_for(lambda: holds.search(full.lab.run(*shown)), lambda: full.lab.run(*shown))
    measured = full.measure(SECONDS)
    started = f"{measured.started:.0f} s" if measured.started else f"not within {SECONDS} s"
    cells = (
        row or "none: SLURM's own",
        f"{measured.longest_sbatch:.1f} s",
        f"{measured.mean_sbatch:.2f} s",
        f"{measured.scheduler:.2f} s",
        f"{measured.backfill:.1f} s",
        f"{measured.tried:,}",
        f"{os.getloadavg()[0]:.1f}",
        started,
    )
    now = time.strftime("%F %H:%M UTC", time.gmtime())
    record_property(f"{full.lab.release}, {now}", f"| {' | '.join(cells)} |")
