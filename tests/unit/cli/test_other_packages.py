"""The program `muster`: commands of other packages."""

from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from muster.cli import main


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point of a package that is installed by half."""
    point = EntryPoint("demo", "no_such_package.cli:app", main.PLUGINS)
    monkeypatch.setattr(main, "_commands", lambda: {"demo": point})


@pytest.mark.usefixtures("broken")
def test_help_says_which_command_cannot_be_loaded() -> None:
    shown = CliRunner().invoke(main.app, ["--help"])
    assert shown.exit_code == 0
    assert "Can't be loaded: No module named" in " ".join(shown.output.split())
    assert "secrets" in shown.output


def test_another_package_adds_to_a_group_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("cloud", "muster_sandbox.cloud:app", main.PLUGINS)
    monkeypatch.setattr(main, "_commands", lambda: {"cloud": point})
    for command in ("record", "fake", "demo"):
        shown = CliRunner().invoke(main.app, ["cloud", command, "--help"])
        assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("points", [{}, {"cloud": EntryPoint("cloud", "no_such:app", "g")}])
def test_a_group_works_without_the_commands_of_others(
    monkeypatch: pytest.MonkeyPatch, points: dict[str, EntryPoint]
) -> None:
    monkeypatch.setattr(main, "_commands", lambda: points)
    assert CliRunner().invoke(main.app, ["cloud", "record", "--help"]).exit_code == 0
    shown = CliRunner().invoke(main.app, ["cloud", "--help"], env={"COLUMNS": "200"})
    assert ("Commands are missing: the package" in shown.output) is bool(points)
    assert CliRunner().invoke(main.app, ["cloud", "fake"]).exit_code == 2


@pytest.mark.usefixtures("broken")
def test_a_command_that_cannot_be_loaded_says_what_to_do() -> None:
    shown = CliRunner().invoke(main.app, ["demo"])
    assert shown.exit_code == 1
    assert "can't be loaded: No module named 'no_such_package'; install it again" in shown.output
