"""Runs `muster` in the process of the tests, which has imported its modules already."""

from contextlib import chdir
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from muster.cli.main import app


def run(capfd: pytest.CaptureFixture[str], *words: str, cwd: Path) -> CompletedProcess[str]:
    """Return what the program says, with what programs say that it starts, and its exit code."""
    capfd.readouterr()
    with chdir(cwd), pytest.raises(SystemExit) as ended:
        app(words, prog_name="muster")
    said = capfd.readouterr()
    return CompletedProcess(words, int(ended.value.code or 0), said.out, said.err)
