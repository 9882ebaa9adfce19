"""Commands of muster that are programs of a cluster's hosts, which need no Muster there."""

import os
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
