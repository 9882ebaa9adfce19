"""`muster job` goes on as the program of the host."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster.cli import host_programs
from muster.cli.main import app


def test_the_number_reaches_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "muster-job").touch(0o755)
    monkeypatch.setattr(host_programs, "PROGRAMS", tmp_path)
    calls: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda program, words: calls.append((program.name, words[1:])))
    assert CliRunner().invoke(app, ["job", "12_3"]).exit_code == 0
    assert calls == [("muster-job", ["--", "12_3"])]


def test_a_machine_without_the_program_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_programs, "PROGRAMS", tmp_path)
    result = CliRunner().invoke(app, ["job", "12"])
    assert result.exit_code == 2
    assert "log in to a login node of the cluster and type muster-job 12 there" in result.stderr
