# SPDX-License-Identifier: Apache-2.0
"""The command line of muster-container."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from muster_containers import images, job, run, settings, store
from muster_containers.errors import ContainerError, printable

FAILED = 1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalError(BaseException):
    """A signal that ends the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    whole = argparse.ArgumentParser(
        prog="muster-container",
        description="Bring OCI images into a folder that hosts share, and run programs of them in "
        "jobs, without root.",
        epilog=f"Exit code: the program's own for run; {FAILED}: an error, which it says; 2: the "
        "words are wrong; 128 and the signal's number: a signal ended it.",
        allow_abbrev=False,
    )
    commands = whole.add_subparsers(dest="action", required=True, metavar="COMMAND")
    pull = commands.add_parser("pull", help="bring an image into the store", allow_abbrev=False)
    pull.add_argument(
        "source", help="docker.io/library/debian:12, oci-archive:FILE, oci:FOLDER, ..."
    )
    pull.add_argument("name", nargs="?", help="NAME:TAG in the store; without it the source's own")
    pull.add_argument("--again", action="store_true", help="replace the image that is there")
    remove = commands.add_parser(
        "remove", help="take an image out of the store", allow_abbrev=False
    )
    remove.add_argument("name")
    listing = commands.add_parser(
        "list",
        help="show the images in the store: name, architecture, size, where each came from, the "
        "digest it has there, when it was pulled and by whom",
        allow_abbrev=False,
    )
    for one in (pull, remove, listing):
        one.add_argument("--store", help="a folder of your own instead of the shared store")
    start = commands.add_parser(
        "run",
        help="run a program of an image as a task of a job",
        usage="srun muster-container run [--store FOLDER] IMAGE [COMMAND [WORD ...]]",
        allow_abbrev=False,
    )
    start.add_argument("--store", help="a folder of your own instead of the shared store")
    start.add_argument(
        "name", metavar="IMAGE", help="NAME:TAG in the store, or the path of a folder"
    )
    start.add_argument("command", nargs=argparse.REMAINDER, help="the image's own if left out")
    return whole


def main(words: Sequence[str]) -> int:
    """Do what the words say, or become podman; return the exit code."""
    options = parser().parse_args(words)
    try:
        with _ended_in_order():
            given = settings.read()
            folder = os.path.realpath(options.store or given.store)
            if options.action == "run":
                _become(options, given, folder)
            os.umask(store.umask_of(folder))
            if options.action == "list":
                return _list(folder)
            if options.action == "remove":
                store.remove(options.name, folder)
            else:
                _pull(options, folder)
    except ContainerError as error:
        sys.stderr.write(f"muster-container: {error}\n")
        return FAILED
    except SignalError as ended:
        sys.stderr.write(f"muster-container: ended by {signal.Signals(ended.number).name}\n")
        return 128 + ended.number
    return 0


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Raise SignalError at a signal that ends the program: what was begun is undone on the way."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    # nohup has one ignored.
    taken = [number for number in _ENDING if before[number] is not signal.SIG_IGN]

    def end(number: int, _frame: FrameType | None) -> None:
        # A second one, such as of another Ctrl-C, does not disturb that.
        for other in taken:
            signal.signal(other, signal.SIG_IGN)
        raise SignalError(number)

    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _pull(options: argparse.Namespace, folder: str) -> None:
    """Bring an image into the store. Raises ContainerError."""
    source = store.source_of(options.source)
    name = options.name or store.name_of(source)
    image, is_new = store.pull(source, name, folder, again=options.again)
    what = "is in" if is_new else "was already in"
    print(f"{':'.join(images.split(name))} {what} {folder} ({store.size_text(image.size)})")


def _list(folder: str) -> int:
    """Print the images in a store and where they came from; return the exit code."""
    code = 0
    for name in images.names(folder):
        try:
            image = images.find(name, folder)
        except ContainerError as error:
            sys.stderr.write(f"muster-container: {printable(name)}: {error}\n")
            code = FAILED
            continue
        record = images.record_of(image.path)
        print(
            *(printable(name), image.architecture, store.size_text(image.size)),
            *(record.source, record.digest, record.pulled, record.by),
            sep="\t",
        )
    return code


def _become(options: argparse.Namespace, given: settings.Settings, folder: str) -> NoReturn:
    """Become podman, which becomes the program. Raises ContainerError."""
    environment = dict(os.environ)
    task = job.task_of(given, environment, os.getpid(), os.getuid())
    with job.one_at_a_time(task):
        image = job.image_of(task, options.name, folder)
        image.check()
        words = run.arguments(
            image,
            options.command,
            given,
            environment,
            cwd=os.getcwd(),
            terminal=sys.stdin.isatty() and sys.stdout.isatty(),
        )
        storage = job.unpack(task, image, environment)
        job.keep(task, options.name, folder, image)
    sys.stdout.flush()
    try:
        os.execvpe("podman", ["podman", *storage, *words], job.environment_of(task, environment))
    except OSError as error:
        raise ContainerError(
            f"podman can't be started ({error.strerror}): have an administrator run site.yml on "
            "this node"
        ) from error
