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


@pytest.mark.usefixtures("broken")
def test_a_command_that_cannot_be_loaded_says_what_to_do() -> None:
    shown = CliRunner().invoke(main.app, ["demo"])
    assert shown.exit_code == 1
    assert "can't be loaded: No module named 'no_such_package'; install it again" in shown.output
