"""Commands of muster that are programs of a cluster's hosts, which need no Muster there."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from muster.cli.exit_codes import WRONG

PROGRAMS = Path("/usr/local/bin")
"""Where roles put them."""


def become(name: str, words: Sequence[str], remedy: str) -> NoReturn:
    """Go on as a program of this host.

    Args:
        name: The program, in `PROGRAMS`.
        words: Its command line, without its name.
        remedy: What to do where this machine does not have it.

    Raises:
        typer.Exit: this machine does not have it.

    """
    program = PROGRAMS / name
    if not os.access(program, os.X_OK):
        typer.echo(f"error: {program} is not on this machine; {remedy}", err=True)
        raise typer.Exit(WRONG)
    os.execv(program, [str(program), *words])  # noqa: S606 (no shell)


def said_by(name: str, words: Sequence[str]) -> str:
    """Return what a program of this host prints; empty where it is not there, or has failed."""
    program = PROGRAMS / name
    if not os.access(program, os.X_OK):
        return ""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, timeout=60, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
