"""The documentation's commands for hosts work there and print what it shows."""

from collections.abc import Iterator

import pytest
from conftest import Lab
from documentation import ROOT, Block, pages

from muster.definition import load
from muster_sandbox.demo import tour

HOSTS = load(ROOT / "inventories/demo").hosts.groups["all"]

BLOCKS = [
    block
    for page in pages()
    for block in page.blocks("console")
    if any(command.host in HOSTS for command in block.commands)
]


@pytest.fixture(scope="module", autouse=True)
def _examples(lab: Lab) -> None:
    """Pages for users name the files that ada has in the demo."""
    tour.prepare(lab.ada)


@pytest.fixture(autouse=True)
def _nodes_in_service(lab: Lab) -> Iterator[None]:
    """Undo a documented drain; SLURM refuses if there is none."""
    yield
    lab.on("lab-access", "scontrol update NodeName=lab-gpu-01 State=RESUME", check=False)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_commands_work_and_print_what_is_shown(lab: Lab, block: Block) -> None:
    for command in block.commands:
        if command.host not in HOSTS:
            # Commands on the control machine, and on example hosts that don't exist.
            continue
        if command.user == "root":
            output = lab.on(command.host, command.line)
        else:
            output = lab.ada.run(command.line)
        assert command.prints(output), f"{command.line}\n{output}"
