"""What keeps a table of nftables loaded, with a stand-in for nft whose rules are a file."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/slurm/files/keep_rules.py"
NFT = """#!/bin/sh
case "$*" in
"--file {file}") grep --quiet nonsense {file} && exit 1; sed s/name/10.0.0.9/ {file} >{loaded} ;;
"list table inet muster_trial") cat {loaded} ;;
*) echo "$*" >&2; exit 2 ;;
esac
"""


class Table:
    """The rules of a file, and those that are loaded."""

    def __init__(self, folder: Path, keeper: ModuleType) -> None:
        self.file, self.loaded, self.keeper = folder / "trial.nft", folder / "loaded", keeper
        self.file.write_text("from name")
        nft = folder / "nft"
        nft.write_text(NFT.format(file=self.file, loaded=self.loaded))
        nft.chmod(0o755)
        keeper.NFT, keeper.PAUSE_S = str(nft), 0

    def kept(self, expected: str) -> str:
        return str(self.keeper.kept(str(self.file), "muster_trial", expected))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    spec = importlib.util.spec_from_file_location("keep_rules", PROGRAM)
    assert spec
    assert spec.loader
    keeper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keeper)
    return Table(tmp_path, keeper)


def test_rules_that_are_gone_are_loaded_and_told(table: Table, capfd) -> None:
    assert table.kept("") == "from 10.0.0.9"
    table.loaded.unlink()
    assert table.kept("from 10.0.0.9") == "from 10.0.0.9"
    said = f"muster: the rules of muster_trial were gone; loaded {table.file} again\n"
    assert capfd.readouterr().err == said * 2


def test_rules_that_somebody_changed_are_loaded_and_told(table: Table, capfd) -> None:
    table.loaded.write_text("from all")
    assert table.kept("from 10.0.0.9") == "from 10.0.0.9"
    assert table.loaded.read_text() == "from 10.0.0.9"
    assert "the rules of muster_trial were changed; loaded" in capfd.readouterr().err


def test_nothing_is_loaded_or_said_while_they_are_as_expected(table: Table, capfd) -> None:
    table.loaded.write_text("from 10.0.0.9")
    table.file.write_text("from another")
    assert table.kept("from 10.0.0.9") == "from 10.0.0.9"
    # Another file that somebody has loaded is no loss.
    table.loaded.write_text("from another")
    assert table.kept("from 10.0.0.9") == "from another"
    assert capfd.readouterr().err == ""


def test_at_its_start_it_finds_what_the_unit_has_loaded(table: Table, capfd) -> None:
    table.loaded.write_text("from 10.0.0.9")
    assert table.kept("") == "from 10.0.0.9"
    assert capfd.readouterr().err == ""


def test_a_file_that_nft_refuses_leaves_what_is_loaded(table: Table, capfd) -> None:
    table.file.write_text("nonsense")
    table.loaded.write_text("from 10.0.0.9")
    assert table.kept("") == ""
    assert table.loaded.read_text() == "from 10.0.0.9"
    refused = f"muster: nft refuses {table.file}, so the rules of muster_trial stay as they are\n"
    assert capfd.readouterr().err == refused
    # It is tried again at each change.
    table.loaded.unlink()
    assert table.kept("") == ""
    assert refused in capfd.readouterr().err
    table.file.write_text("from name")
    assert table.kept("") == "from 10.0.0.9"


def test_rules_that_somebody_changed_are_not_taken_for_those_of_a_file_that_is_refused(
    table: Table,
) -> None:
    """Such as a file with a name, while no name server answers."""
    table.file.write_text("nonsense")
    table.loaded.write_text("from all")
    expected = table.kept("from 10.0.0.9")
    table.file.write_text("from name")
    assert table.kept(expected) == "from 10.0.0.9"
    assert table.loaded.read_text() == "from 10.0.0.9"


def test_without_file_and_table_it_says_how(table: Table, capsys) -> None:
    assert table.keeper.main(["trial.nft"]) == 2
    assert capsys.readouterr().err == "usage: muster-keep-rules FILE TABLE\n"
