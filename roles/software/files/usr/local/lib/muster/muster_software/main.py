# SPDX-License-Identifier: Apache-2.0
"""Show the releases of modules, go back to an earlier one, and remove those that nobody needs.

    muster-software list [--json]
    muster-software rollback MODULE/VERSION [RELEASE]
    muster-software gc [--days DAYS]

Installed by Muster's role `software` on the host that builds. A release is a folder that never
changes, named by a digest. Beside it is RELEASE.json with its module, the folders that it is built
on, the system that it was built on, and its modulefile. A packed release is a link to where hosts
mount the file that it is packed into; a look into it would mount it. What users load is in the
modulefiles below modules/, so these alone say what is published. Exit code 1: stderr says what
can't be done.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence

from mount_table import no_answer, not_mounted
from muster_build import build
from muster_build.errors import RefusedError

from muster_software.collect import SHELL_DAYS, collect
from muster_software.listing import report, shown
from muster_software.rollback import rollback
from muster_software.settings import Settings, read_settings

LOCK = "/run/muster-software.lock"

BUSY = "a build, rollback or gc runs on this host; wait for it, then run again"


def print_lines(lines: Iterable[str]) -> None:
    """Print each line as soon as it is known."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def refuse_unavailable(settings: Settings) -> None:
    """Refuse a shared folder that is silent or not mounted. Raises RefusedError or OSError."""
    sentence = no_answer(settings.apps) or not_mounted(settings.apps)
    if sentence is not None:
        raise RefusedError(sentence)


def days(text: str) -> int:
    """Return a number of days after which no shell has loaded a release any more."""
    number = int(text)
    if number < SHELL_DAYS:
        raise argparse.ArgumentTypeError(
            f"{number} is too few: shells that have loaded a module may be {SHELL_DAYS} days old"
        )
    return number


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="muster-software", description="Show, roll back and remove releases of modules."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    everything = commands.add_parser("list", help="show the releases of all modules")
    everything.add_argument("--json", action="store_true", help="for programs")
    back = commands.add_parser("rollback", help="have users load an earlier release")
    back.add_argument("module", metavar="MODULE/VERSION")
    back.add_argument("release", metavar="RELEASE", nargs="?")
    removing = commands.add_parser(
        "gc", help="remove releases that no modulefile names and no job may use"
    )
    removing.add_argument(
        "--days",
        type=days,
        default=SHELL_DAYS,
        metavar="DAYS",
        help=f"how long they stay after they were replaced; {SHELL_DAYS}, or more",
    )
    given = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        settings = read_settings()
        refuse_unavailable(settings)
        if given.command == "list":
            print_lines([json.dumps(report(settings))] if given.json else shown(settings))
        elif given.command == "rollback":
            with build.locked(LOCK, BUSY):
                print_lines([rollback(settings, given.module, given.release)])
        else:
            with build.locked(LOCK, BUSY), build.locked(build.LOCK, BUSY):
                print_lines(collect(settings, given.days))
    except RefusedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(
            f"{error.filename}: {error.strerror}; nothing else was changed: fix the cause and run "
            "again\n"
        )
        return 1
    return 0
