"""Recorded variables and answers of SLURM, of both releases that Debian has."""

from pathlib import Path

import jobs_library  # noqa: F401 (makes muster_launch and muster_jobs importable)
import pytest

FOLDER = Path(__file__).parent
RELEASES = ["22.05", "24.11"]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recorded(release: str):
    """Return the variables that a task had: two nodes with two GPUs and two CPUs each."""

    def read(name: str) -> dict[str, str]:
        text = (FOLDER / "environments" / release / f"{name}.env").read_text(encoding="utf-8")
        return dict(line.split("=", 1) for line in text.splitlines())

    return read
