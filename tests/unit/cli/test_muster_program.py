"""The program `muster` itself: its version, and what the help of each command says."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest
import yaml
from typer.testing import CliRunner

import muster
from muster.cli import version
from muster.cli.exit_codes import EXIT_CODES
from muster.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[3]
WRAPPER = ROOT / "roles/autoscaler/templates/usr/local/bin/muster.j2"


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


def test_nothing_in_the_folder_in_which_it_is_typed_on_a_controller_is_run(tmp_path: Path) -> None:
    (tmp_path / "muster").mkdir()
    for name in ("muster/__init__.py", "muster/__main__.py", "typer.py", "json.py"):
        (tmp_path / name).write_text("print('planted')\nraise SystemExit(9)\n")
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 (no HTML)
    environment.filters["comment"] = lambda text: f"# {text}"
    script = environment.from_string(WRAPPER.read_text()).render(ansible_managed="managed")
    script = script.replace("/opt/muster/venv/bin/python", sys.executable)
    script = script.replace("/opt/muster/current", str(ROOT))
    done = subprocess.run(
        ["sh", "-c", script, "muster", "why", "--unknown"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: muster why " in done.stderr


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
