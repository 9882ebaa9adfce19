"""The program `muster` itself: its version, and what the help of each command says."""

import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import muster
from muster.cli import version
from muster.cli.exit_codes import EXIT_CODES
from muster.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[3]


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return " ".join(result.stdout.split())


def test_the_version_is_printed() -> None:
    said = shown("--version")
    assert said.startswith(f"muster {muster.__version__}")


@pytest.mark.parametrize("file", ["pyproject.toml", "muster_sandbox/pyproject.toml", "galaxy.yml"])
def test_all_files_have_the_same_version(file: str) -> None:
    text = (ROOT / file).read_text()
    facts = tomllib.loads(text)["project"] if file.endswith("toml") else yaml.safe_load(text)
    assert facts["version"] == muster.__version__


def test_a_checkout_says_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(version, "ROOT", tmp_path)
    assert version.version() == f"muster {muster.__version__}"
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path))
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"], ["tag", "v9"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    said = version.version()
    assert head.stdout.startswith(said.partition("(")[2].rstrip(")"))
    assert said.startswith(f"muster {muster.__version__} (")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert version.version() == f"muster {muster.__version__}"


@pytest.mark.parametrize("command", EXIT_CODES)
def test_the_help_of_each_command_has_its_exit_codes(command: str) -> None:
    text = shown(*command.split(), "--help")
    codes = EXIT_CODES[command]
    assert codes
    for code, when in codes.items():
        assert f"{code}: {when}." in text


@pytest.mark.parametrize(
    "command",
    [
        *(f"demo {name}" for name in ("all", "up", "tour", "shell", "down")),
        "cloud demo",
        "cloud fake",
    ],
)
def test_so_has_that_of_the_sandbox_s_commands(command: str) -> None:
    assert "Exit code 0: done." in shown(*command.split(), "--help")


def test_no_command_says_its_exit_codes_a_second_time() -> None:
    assert {name.split()[0] for name in EXIT_CODES} == COMMANDS.keys()
    for command in EXIT_CODES:
        assert shown(*command.split(), "--help").lower().count("exit code") == 1
