# SPDX-License-Identifier: Apache-2.0
"""The program muster-data: brings data sets, with the rights of who runs it."""

import argparse
import os
from collections.abc import Sequence

from muster_models import add, buckets, download, folders
from muster_models.download import Source
from muster_models.errors import ModelsError, of_system
from muster_models.progress import Progress, amount, say, tell

DONE, FAILED = 0, 1
_REMEDY = "put a folder in its place, or name another folder to bring the files to"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    whole = argparse.ArgumentParser(
        prog="muster-data",
        description="Brings data sets to shared folders: see docs/models.md.",
        allow_abbrev=False,
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    text = "Bring files to a folder: those that are there already do not come again."
    stage = commands.add_parser(
        "stage",
        help=text,
        description=text,
        epilog="Exit code 0: all files are there and checked. 1: not all are, and the next run "
        "goes on from there. 2: the words are wrong.",
        allow_abbrev=False,
    )
    stage.add_argument("source", metavar="SOURCE", help="gs://BUCKET/PREFIX or a file's address")
    stage.add_argument("folder", metavar="DEST", help="the folder; it is made if it is not there")
    stage.add_argument("--sha256", metavar="DIGEST", help="of the file at an address")
    return whole


def main(words: Sequence[str]) -> int:
    """Do what the command line says; return the exit code."""
    options = parser().parse_args(words)
    try:
        _stage(options.source, options.folder, options.sha256)
    except ModelsError as error:
        say(f"error: {error}")
    except OSError as error:
        say(f"error: {of_system(error, options.folder)}")
    except KeyboardInterrupt:
        say("interrupted; the next run goes on from here")
    else:
        return DONE
    return FAILED


def _stage(source: str, folder: str, sha256: str | None) -> None:
    files = _files(source, sha256)
    total = sum(file.size or 0 for file in files.values())
    progress = Progress(source.partition("?")[0], total)
    came = size = 0
    # Others may write there too, and put links to folders of who runs this.
    with folders.opened(folder, None, folders.trusted(), _REMEDY, makes=True) as top:
        for path, file in files.items():
            if file.digest is None:
                say(f"{file.name} has no digest in its bucket; its size alone is checked")
            below, name = os.path.split(path)
            with folders.opened(below, top, (), _REMEDY, makes=True) as place:
                came += download.bring(file, os.path.join(folder, path), place, progress)
                size += os.stat(name, dir_fd=place, follow_symlinks=False).st_size
    tell(f"{folder}: {len(files)} files, {amount(size)}; {came} of them came now")


def _files(source: str, sha256: str | None) -> dict[str, Source]:
    """Return the files of a source by their path below the folder. Raises ModelsError."""
    if buckets.is_address(source):
        if sha256:
            raise ModelsError("--sha256 is for an https address; leave it out")
        return {item.path: item.source for item in buckets.objects(source, buckets.login())}
    if source.startswith(("https://", "http://")):
        return {add.name_of(source): Source(source, add.checked_sha256(sha256, source))}
    raise ModelsError(f"{source} is no source; name gs://BUCKET/PREFIX or an https address")
