# SPDX-License-Identifier: Apache-2.0
"""The program notebook."""

import argparse
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from muster_jobs.records import JOB, Run

from muster_notebook import job
from muster_notebook.errors import NotebookError
from muster_notebook.job import Place, Waiter
from muster_notebook.server import NOT_LOADED, PROGRAM

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 130
_PORT = 8888
_FIRST_PORT, _LAST_PORT = 1024, 65535
_SHORT_FLAGS = "HhkOQsVv"
_FLAGS = (
    *(
        "--contiguous",
        "--exclusive",
        "--get-user-env",
        "--help",
        "--hold",
        "--ignore-pbs",
        "--nice",
    ),
    *("--no-kill", "--no-requeue", "--overcommit", "--oversubscribe", "--parsable", "--propagate"),
    *("--quiet", "--reboot", "--requeue", "--spread-job", "--test-only", "--usage"),
    *("--use-min-nodes", "--verbose", "--version"),
)
"""Options of sbatch(1) without a value in the next word: what follows them is a script."""
_NOT_FOR_SBATCH = ("SBATCH_ARRAY_INX", "SBATCH_WAIT")
"""Variables that do what `refused` refuses."""


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    whole = argparse.ArgumentParser(
        prog="notebook",
        usage="notebook [--port PORT] [OPTION OF SBATCH ...]\n"
        "       notebook [--port PORT] --job JOB",
        description="Submit JupyterLab as a job, and print the ssh line that reaches it from your "
        "own machine. Load the module that has JupyterLab first. The notebook ends with the job: "
        "at its time limit, by scancel, or by Shut Down in JupyterLab's menu.",
        epilog=f"Exit code {DONE}: the line is printed. {FAILED}: there is no notebook. {WRONG}: "
        f"the words are wrong. {INTERRUPTED}: you did not wait for it.",
        allow_abbrev=False,
    )
    whole.add_argument(
        "--port", type=_port, default=_PORT, help=f"of your own machine ({_PORT} without it)"
    )
    whole.add_argument("--job", help="print the line of a notebook that is there already")
    return whole


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and _FIRST_PORT <= int(text) <= _LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is no port: choose a number from {_FIRST_PORT} to {_LAST_PORT}"
    )


def run_program(
    command: Sequence[str], timeout: float, data: bytes | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program of SLURM; squeue and srun don't see of which job this shell may be a part."""
    environment = dict(os.environ)
    if command[0].endswith(("/srun", "/squeue")):
        unwanted = ("SLURM_", "SQUEUE_", "LC_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        environment |= {"LC_ALL": "C.UTF-8"}
        if "SLURM_CONF" in os.environ:
            environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    else:
        environment = {k: v for k, v in environment.items() if k not in _NOT_FOR_SBATCH}
    return subprocess.run(
        command,
        timeout=timeout,
        input=data if data is not None else b"",
        env=environment,
        capture_output=True,
        check=False,
    )


def main(words: Sequence[str], run: Run = run_program) -> int:
    """Bring the notebook up and print how to reach it; return the exit code."""
    whole = parser()
    options, for_sbatch = whole.parse_known_args(words)
    if options.job is not None and not JOB.fullmatch(options.job):
        whole.error(f"{options.job!r} is no number of a job, such as 12")
    if options.job is not None and for_sbatch:
        whole.error(f"job {options.job} has its options already: leave out {for_sbatch[0]}")
    wrong = refused(for_sbatch)
    if wrong is not None:
        whole.error(f"{wrong!r} would start something else, or more than one: leave it out")
    number = options.job or ""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    try:
        if not number:
            if shutil.which(PROGRAM) is None:
                raise NotebookError(NOT_LOADED)
            number = job.submit(for_sbatch, home, run)
            _say(f"Job {number} is JupyterLab; it is in the queue\n")
        Waiter(run, _say).until_it_runs(number)
        _say("  It runs, and JupyterLab starts: that can take a minute\n")
        place = job.ask(number, run)
    except KeyboardInterrupt:
        _say(_left(number))
        return INTERRUPTED
    except NotebookError as error:
        if number and job.has_ended(number, run):
            log = job.log_of(number, home)
            _say(
                f"error: job {number} ended before its notebook was ready: muster-job {number} "
                f"says how, and {log} why\n{job.last_lines(log)}"
            )
            return FAILED
        _say(f"error: {error}\n{_left(number) if number else ''}")
        return FAILED
    login = pwd.getpwuid(os.getuid()).pw_name
    reach = lines(number, place, login, socket.gethostname(), options.port)
    sys.stdout.write(reach + address(number, place, options.port, sys.stdout.isatty()))
    return DONE


def refused(words: Sequence[str]) -> str | None:
    """Return the word with which sbatch would not start one notebook, or not come back.

    That is a script, an array, a second component of a job (`:`), or waiting for the job's end.
    sbatch takes options cut short, and several letters in one word.
    """
    takes_a_value = False
    for word in words:
        name, has_value, _ = word.partition("=")
        short = re.fullmatch(rf"-[{_SHORT_FLAGS}]*([A-Za-z]?)([^-].*)?", word)
        if word in ("--", ":") or name == "--wait" or word.startswith(("--ar", "--wr")):
            return word
        if short and short[1] in ("a", "W"):
            return word
        if not word.startswith("-") and not takes_a_value:
            return word
        if short:
            takes_a_value = bool(short[1]) and not short[2]
        else:
            is_flag = any(flag.startswith(word) for flag in _FLAGS)
            takes_a_value = word.startswith("--") and not has_value and not is_flag
    return None


def _left(number: str) -> str:
    if not number:
        return "squeue --me shows whether the job was submitted\n"
    return (
        f"job {number} is still there: notebook --job {number} waits for it again, and "
        f"scancel {number} ends it\n"
    )


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def lines(number: str, place: Place, login: str, host: str, port: int) -> str:
    """Return what to type on one's own machine.

    Args:
        number: Of the job.
        place: Where its notebook is.
        login: Of who types it.
        host: The login node's name.
        port: Of the own machine.

    """
    over = [] if place.node == host else ["-J", f"{login}@{host}"]
    command = [
        *("ssh", "-N", "-o", "ExitOnForwardFailure=yes"),
        *("-L", f"localhost:{port}:{place.socket}", *over, f"{login}@{place.node}"),
    ]
    return (
        f"JupyterLab runs on {place.node} until job {number} ends (scancel {number}).\n"
        "Type this on your own machine, and leave it open:\n\n"
        f"  {shlex.join(command)}\n\n"
        f"If ssh says that port {port} is in use, or if you log in by another name than {host}, "
        "put yours in its place.\n"
    )


def address(number: str, place: Place, port: int, is_terminal: bool) -> str:
    """Return what to open in the browser; its token goes to a terminal, never into a file."""
    if not is_terminal:
        return (
            "The address has a token, which is not written to a file: type "
            f"notebook --job {number} in a terminal\n"
        )
    return f"Then open in your browser:\n\n  http://localhost:{port}/lab?token={place.token}\n"
