# SPDX-License-Identifier: Apache-2.0
"""Build one folder of software as an account of its own, closed off from the rest of the host.

    muster-build [--timeout SECONDS] [--verify COMMAND] [--image FILE] FOLDER COMMAND

Installed by Muster's role `software`, whose play runs it; an administrator runs it by hand for what
the play does not build. COMMAND is for /bin/sh and runs programs of strangers. It can write to
FOLDER, which is there and empty, and to a temporary folder of its own, which TMPDIR and HOME name.
It reaches the internet, and no secret, socket or home of this host: systemd sees to that, and the
program inside.py looks whether it does before the command starts. In the end all that the command
has started is killed, and the folder becomes root's.

The second command, which looks whether what was built works, runs in the same way when the folder
is root's already. Then the folder is packed into FILE, if one is named, and becomes a link to where
autofs mounts FILE on each host (role `lmod`). What both print goes to stdout and to a file in
/var/log/muster-build. A build ends when the disk gets full. Until all is done a file
FOLDER.building is beside the folder. Exit code 1: it was not built, nothing is left, and stderr
says why.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from muster_build.build import build
from muster_build.errors import (
    FailedError,
    InterruptError,
    PackError,
    RefusedError,
    VerifyError,
)


def interrupt(_: int, __: FrameType | None) -> NoReturn:
    """Have the build end, and what it left removed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise InterruptError


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="muster-build",
        description="Build one folder of software, closed off from the rest of the host.",
    )
    parser.add_argument("--timeout", type=int, metavar="SECONDS", help="how long it may take")
    parser.add_argument("--verify", metavar="COMMAND", help="looks whether it works")
    parser.add_argument("--image", metavar="FILE", help="the folder is packed into it")
    parser.add_argument("folder", metavar="FOLDER", help="where the command puts the software")
    parser.add_argument("command", metavar="COMMAND", help="for /bin/sh; quote it")
    given = parser.parse_args(arguments)
    os.umask(0o022)
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        build(given.folder, given.command, given.verify, given.image, given.timeout)
    except VerifyError as error:
        said = (
            f"{given.folder} was built, but does not work, so it was removed and is not published: "
            f"{error}; fix its definition and run again"
        )
    except PackError as error:
        said = (
            f"{given.folder} was built, but can't be packed into {given.image}, so it was removed "
            f"and is not published: {error}; run again when that is mended"
        )
    except FailedError as error:
        said = (
            f"{given.folder} was not built and nothing is left of it: {error}; the command was "
            f"`{given.command}`; fix its definition and run again, or set `built: false` to build "
            "it by hand"
        )
    except RefusedError as error:
        said = str(error)
    except InterruptError:
        said = f"{given.folder} was not built: interrupted; run again"
    except OSError as error:
        why = ": ".join(filter(None, [error.filename, error.strerror]))
        said = f"{given.folder} was not built: {why}; fix the cause and run again"
    else:
        return 0
    sys.stderr.write(f"{said}\n")
    return 1
