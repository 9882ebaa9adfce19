"""A run of all lots of the autoscaler's games fails where a class of faults was too rare in it."""

import subprocess
import sys
from pathlib import Path

import pytest

LOTS = """
import pytest

@pytest.mark.parametrize("lot", range(4))
def test_lot(lot, record_property):
    record_property("games", "chance")
    record_property("seed", 1)
    record_property("lots", 4)
    record_property("faults", {"often": 100, "seldom": 5})
"""
RARE = "error: fewer than 21 times in all 4 lots: seldom; the run proves nothing of it"


def play(folder: Path, least: int, *options: str) -> tuple[int, str]:
    """Exit status, and what is printed."""
    conftest = Path(__file__).with_name("conftest.py").read_text()
    assert "\nLEAST = 20\n" in conftest
    (folder / "conftest.py").write_text(conftest.replace("LEAST = 20", f"LEAST = {least}"))
    (folder / "test_lots.py").write_text(LOTS)
    command = [sys.executable, "-m", "pytest", "--rootdir", folder, *options, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [(), ("--numprocesses", "2")], ids=["one", "two"])
def test_a_class_of_faults_that_was_rare_in_all_lots_fails_the_run(tmp_path, options):
    status, said = play(tmp_path, 21, *options)
    assert (status, "4 passed" in said) == (1, True)
    assert "often: 400, seldom: 20" in said
    assert RARE in said
    assert play(tmp_path, 20, *options)[0] == 0


def test_a_part_of_the_lots_is_not_judged(tmp_path):
    status, said = play(tmp_path, 1000, "--deselect", "test_lots.py::test_lot[3]")
    assert (status, "error: fewer" in said) == (0, False)
    assert "often: 300, seldom: 15" in said
