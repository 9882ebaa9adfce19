"""A session of all shards of the fault-injection tests fails if a kind of fault was too rare."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARDS = """
import pytest

@pytest.mark.parametrize("shard", range(4))
def test_shard(shard, record_property):
    record_property("fault_runs", "chance")
    record_property("seed", 1)
    record_property("shards", 4)
    record_property("faults", {"often": 100, "seldom": 5})
"""
RARE = "error: fewer than 21 times in all 4 shards: seldom; the run proves nothing about it"


def run(folder: Path, least: int, *options: str) -> tuple[int, str]:
    """Run the shards; return the exit status and the output."""
    conftest = Path(__file__).with_name("conftest.py").read_text()
    assert "\nLEAST = 20\n" in conftest
    (folder / "conftest.py").write_text(conftest.replace("LEAST = 20", f"LEAST = {least}"))
    (folder / "test_shards.py").write_text(SHARDS)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "--rootdir", folder, *options, folder]
    # Of the plugins of other packages it needs no more than that one.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [(), ("--numprocesses", "2")], ids=["one", "two"])
def test_a_kind_of_fault_that_was_rare_in_all_shards_fails_the_run(tmp_path, options):
    status, output = run(tmp_path, 21, *options)
    assert (status, "4 passed" in output) == (1, True)
    assert "often: 400, seldom: 20" in output
    assert RARE in output
    assert run(tmp_path, 20, *options)[0] == 0


def test_a_part_of_the_shards_is_not_judged(tmp_path):
    status, output = run(tmp_path, 1000, "--deselect", "test_shards.py::test_shard[3]")
    assert (status, "error: fewer" in output) == (0, False)
    assert "often: 300, seldom: 15" in output
