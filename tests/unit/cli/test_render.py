"""`muster render`: the files on paper."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muster.cli.main import app
from muster.definition import load
from muster.render.slurm import render

LAB = Path(__file__).parents[3] / "inventories" / "lab"
FILES = ["cgroup.conf", "gres.conf", "job_submit.lua", "slurm.conf", "slurmdbd.conf"]


@pytest.fixture
def muster():
    return lambda *arguments: CliRunner().invoke(app, ["render", *map(str, arguments)])


def test_prints_every_file_under_its_name(muster):
    result = muster(LAB)
    assert result.exit_code == 0
    assert sorted(
        line.removeprefix("#### ") for line in result.stdout.splitlines() if "####" in line
    ) == sorted(FILES)
    assert "NodeName=lab-gpu-[01-02] Name=gpu File=/dev/nvidia[0-3]" in result.stdout


def test_writes_what_the_play_writes(muster, tmp_path):
    result = muster(LAB, "--output", tmp_path / "new" / "folder")
    assert result.exit_code == 0
    written = {path.name: path.read_text() for path in (tmp_path / "new" / "folder").iterdir()}
    assert sorted(written) == FILES
    assert written["slurm.conf"] == render(load(LAB)).slurm_conf


def test_a_wrong_definition_writes_nothing_and_says_why(muster, tmp_path):
    inventory = tmp_path / "lab"
    shutil.copytree(LAB, inventory, ignore=shutil.ignore_patterns("secrets.yml"))
    definition = inventory / "group_vars" / "all" / "cluster.yml"
    definition.write_text(definition.read_text().replace("nodes: [gpu]", "nodes: [gpus]"))
    result = muster(inventory, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert "gpus" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["file", "file/below", "full"])
def test_an_output_that_can_t_be_written_is_a_sentence(muster, tmp_path, place):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full/slurm.conf").mkdir(parents=True)
    result = muster(LAB, "--output", tmp_path / place)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path}")
    assert result.stderr.endswith("; name a folder that you can write to\n")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert (tmp_path / "file").read_text() == "mine"
