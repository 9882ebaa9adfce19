"""`muster cloud record`: a command, and a file with all that it said to Google and was answered."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.exit_codes import WRONG
from muster.cli.version import version

_SECRET_VARIABLES = re.compile(r".*(PASSPHRASE|PASSWORD|TOKEN|SECRET|CREDENTIALS)")


def record(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="What to run, with its options: -- pulumi up"),
    ],
) -> None:
    """Run a command, and write all its requests to Google with their answers into a file.

    Tokens, keys, passwords and the contents of secrets are left out; names and addresses are not.
    """
    words = command[1:] if command[0] == "--" else command
    _check(words)
    try:
        # Only for who types it: the answers name people.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _stop(f"{file} exists already; name another file") from None
    except OSError as error:
        raise _stop(
            f"{file} can't be written: {(error.strerror or str(error)).lower()}; name another place"
        ) from error
    # Not for `muster --help`.
    from muster.gcp.recorder import Recorder, recording  # noqa: PLC0415

    output = os.fdopen(descriptor, "w", encoding="utf-8")
    try:
        recorder = Recorder(output, _secrets())
        recorder.begin(muster=version(), command=" ".join(words))
        if recorder.failure:
            raise _stop(f"{file} can't be written: {recorder.failure}; name another place")
        with recording(recorder) as variables:
            code = _run(words, variables)
    finally:
        with suppress(OSError):  # what could not be written is told below
            output.close()
    if recorder.failure:
        typer.echo(
            f"error: {file} is not complete: {recorder.failure}; make room, and record the next "
            "run into another file",
            err=True,
        )
        raise typer.Exit(code)
    typer.echo(
        f"wrote {file}: {recorder.count} requests; read it before you send it: it names the "
        "project, its resources and people",
        err=True,
    )
    raise typer.Exit(code)


def _check(words: list[str]) -> None:
    """Refuse what can't be recorded, before the file is made."""
    if not words:
        raise _stop("no command is given: muster cloud record FILE -- pulumi up")
    if Path(words[0]).name.startswith("ansible"):
        raise _stop(
            f"{words[0]} would write the recorder's address into the controller's settings; "
            "record `pulumi` only"
        )
    if shutil.which(words[0]) is None:
        raise _stop(f"there is no program {words[0]} here; install it, or give its path")


def _run(words: list[str], variables: dict[str, str]) -> int:
    """Run the command on this terminal, and return its exit code."""
    # Ctrl-C goes to the command, which ends by itself: Pulumi first finishes what it has begun.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        done = subprocess.run(words, env=os.environ | variables, check=False)
    finally:
        signal.signal(signal.SIGINT, before)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _secrets() -> list[str]:
    """The values of variables that hold passwords or tokens."""
    return [text for name, text in os.environ.items() if _SECRET_VARIABLES.fullmatch(name)]


def _stop(message: str) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(WRONG)
