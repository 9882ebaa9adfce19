"""`muster models` and `muster data` go on as the programs of the host, with all words."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster.cli import host_programs
from muster.cli.main import app


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The programs as which this one went on."""
    for name in ("muster-models", "muster-data"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(host_programs, "PROGRAMS", tmp_path)
    calls: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda program, words: calls.append((program.name, words[1:])))
    return calls


@pytest.mark.parametrize(
    ("words", "program", "passed"),
    [
        (["models", "add", "hf:lab/bert@v1"], "muster-models", ["add", "--", "hf:lab/bert@v1"]),
        (
            ["models", "add", "/data/a", "--name", "lab/a", "--licence", "mit"],
            "muster-models",
            ["add", "--name=lab/a", "--licence=mit", "--", "/data/a"],
        ),
        (["models", "list"], "muster-models", ["list"]),
        (["models", "list", "lab/a"], "muster-models", ["list", "--", "lab/a"]),
        (["models", "verify"], "muster-models", ["verify", "--"]),
        (["models", "verify", "lab/a", "b"], "muster-models", ["verify", "--", "lab/a", "b"]),
        (["models", "gc"], "muster-models", ["gc"]),
        (
            ["data", "stage", "https://example.org/a", "/data", "--sha256", "0"],
            "muster-data",
            ["stage", "--sha256=0", "--", "https://example.org/a", "/data"],
        ),
    ],
)
def test_the_words_reach_the_program(
    became: list[Any], words: list[str], program: str, passed: list[str]
) -> None:
    assert CliRunner().invoke(app, words).exit_code == 0
    assert became == [(program, passed)]


@pytest.mark.parametrize("words", [["models", "list"], ["data", "stage", "gs://b/x", "/data"]])
def test_a_machine_without_the_program_says_where_it_is(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_programs, "PROGRAMS", tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "log in to a login node of a cluster with `storage.models`" in result.stderr
