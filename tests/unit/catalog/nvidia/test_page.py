"""docs/gpu-nodes.md recommends the driver that the tables choose."""

import re
from pathlib import Path

from muster.catalog.nvidia import Gpu, branches, fitting, gpus

PAGE = Path(__file__).parents[4] / "docs/gpu-nodes.md"
SYSTEMS = ["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"]


def recommended(system: str, gpu: Gpu) -> str:
    """Return the shortest thing that the definition can say for a GPU, and what comes of it."""
    choices = fitting(system, gpu)
    if not choices:
        return "none"
    source, driver = choices[0]
    said = [] if source == "distribution" else ["source: nvidia"]
    said += [] if driver.branch == branches(system, source)[0] else [f"branch: {driver.branch}"]
    return f"`{{{', '.join(said)}}}`: {driver.branch}, {driver.modules}"


def rows() -> list[str]:
    """Return the table's rows: GPUs of one generation for which the same is to be said."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, gpu in gpus().items():
        cells = [recommended(system, gpu) for system in SYSTEMS]
        assert cells[2] == cells[3], "the page has one column for Ubuntu"
        groups.setdefault((gpu.generation.name, *cells[:3]), []).append(name)
    return [
        f"| {generation}: {', '.join(names)} | {' | '.join(cells)} |"
        for (generation, *cells), names in groups.items()
    ]


def test_the_table_is_that_of_the_drivers():
    text = PAGE.read_text(encoding="utf-8")
    table = re.search(r"^\| GPUs \|.*\n\|[-|]+\n((?:\|.*\n)*)", text, re.MULTILINE)
    assert table
    assert table.group(1).splitlines() == rows()
