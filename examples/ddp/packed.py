#!/usr/bin/env python3
"""Data in few large files, read ahead: packed.py pack FILES FOLDER, or packed.py points FOLDER.

A file server has to look up and open each of many small files. Here samples are in tar archives,
and an index says where: a sample is one read, of a file that is open already. Threads read what the
next steps need. Processes, as those of PyTorch's DataLoader, would end at the signal that SLURM
sends before the time limit; and while a thread reads, or decodes an image, the others go on.

`pack` makes a sample of each file in a folder, `points` those that ddp.py learns from; `verify`
reads all. The index comes last, so a pack that was ended in the middle is none. It has a checksum
of each sample and one of itself, and damaged data ends a training with a sentence.
"""

import argparse
import io
import itertools
import json
import os
import random
import resource
import sys
import tarfile
import threading
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

INDEX = "index.jsonl"
"""A line for each sample: number of the archive, offset, size, CRC-32, name; and a last line."""
ARCHIVE_MIB = 1024
"""Size of an archive, about: large for the file server, small enough to copy one alone."""
AHEAD, THREADS = 8, 4
"""Batches that are read ahead, and how many at a time."""
POINTS, NUMBERS = 20000, 64
"""How many points `points` makes, and of how many numbers each is, 4 bytes a number."""

T = TypeVar("T")


class DataError(Exception):
    """Why data can't be read or packed, in one sentence."""


def archive(number: int) -> str:
    """Return the name of an archive."""
    return f"{number:05}.tar"


# -- packing --------------------------------------------------------------------------------------


def pack(samples: Iterable[tuple[str, bytes]], folder: Path, mib: int = ARCHIVE_MIB) -> int:
    """Write samples into a folder that is new or empty; return how many.

    Raises:
        DataError: the folder can't be written, or has something already; or there are no samples.

    """
    source = iter(samples)
    first = next(source, None)
    if first is None:
        raise DataError("there is nothing to pack: name a folder that has files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError
        return _pack(itertools.chain([first], source), folder, mib)
    except FileExistsError as error:
        raise DataError(
            f"{folder} is not an empty folder: remove it, or name another one"
        ) from error
    except OSError as error:
        raise DataError(
            f"{folder} can't be written ({error.strerror}): make room there (df, muster-quota), or "
            "name another folder"
        ) from error


def _pack(samples: Iterator[tuple[str, bytes]], folder: Path, mib: int) -> int:
    """Write archives and index into an empty folder, or leave it so."""
    new = folder / f"{INDEX}.new"
    number = total = checksum = 0
    # "x": another one may pack at the same time.
    with new.open("xb") as index:
        try:
            while first := next(samples, None):
                rest = itertools.chain([first], samples)
                for place in _write(folder / archive(number), rest, mib):
                    line = f"{json.dumps([number, *place])}\n".encode()
                    index.write(line)
                    total, checksum = total + 1, zlib.crc32(line, checksum)
                print(f"{folder / archive(number)}: {total} samples so far", file=sys.stderr)
                number += 1
            index.write(last_line(checksum))
            index.flush()
            os.fsync(index.fileno())
        except BaseException:
            # A full disk or quota has more use for the room.
            for path in folder.iterdir():
                path.unlink()
            raise
    new.replace(folder / INDEX)
    return total


def last_line(checksum: int) -> bytes:
    """Return the end of an index, by the CRC-32 of all before it: without it some is missing."""
    return f'"{checksum:08x}"\n'.encode()


def _write(
    path: Path, samples: Iterator[tuple[str, bytes]], mib: int
) -> Iterator[tuple[int, int, int, str]]:
    """Write an archive until it is full; yield offset, size, checksum and name of each sample."""
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in samples:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
            end = file.tell()
            # What follows it, up to a whole block, is zeros.
            yield end - -(-info.size // 512) * 512, info.size, zlib.crc32(content), name
            if end >= mib * 2**20:
                break
        tar.close()
        file.flush()
        os.fsync(file.fileno())


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Return all files below a folder, by their path there: that may have the class of an image.

    Raises:
        DataError: the folder, or something in it, can't be read.

    """
    try:
        for text in sorted(_paths(folder)):
            path = Path(text)
            if path.is_file() or path.is_symlink():
                yield path.relative_to(folder).as_posix(), path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{error.filename} can't be read ({error.strerror}): name a folder that you may read, "
            "with all that is in it"
        ) from error


def _paths(folder: Path) -> Iterator[str]:
    """Return the paths of what is no folder; of millions texts take less memory than `Path`s."""

    # By itself os.walk leaves out what it may not read, and says nothing.
    def refused(error: OSError) -> None:
        raise error

    for where, folders, names in os.walk(folder, onerror=refused):
        links = [name for name in folders if Path(where, name).is_symlink()]
        if links:
            raise DataError(
                f"{where}/{links[0]} is a link to a folder, and would be left out: put the folder "
                "itself there, or pack it alone"
            )
        yield from (f"{where}/{name}" for name in names)


def points(number: int) -> Iterator[tuple[str, bytes]]:
    """Return random points."""
    source = random.Random(1)  # noqa: S311
    for sample in range(number):
        yield f"{sample:07}.f32", array("f", (source.gauss(0, 1) for _ in range(NUMBERS))).tobytes()


# -- reading --------------------------------------------------------------------------------------


class Packed:
    """The samples of a folder; any number of threads may read.

    Args:
        folder: What `pack` has made.

    Raises:
        DataError: it has no index, or not all of it.

    """

    def __init__(self, folder: Path) -> None:
        self.folder, path = folder, folder / INDEX
        try:
            self._index = path.read_bytes()
        except OSError as error:
            raise DataError(
                f"{path} can't be read ({error.strerror}): pack the data first "
                f"(python3 packed.py pack FILES {folder}), into a folder that all nodes see"
            ) from error
        end = self._index.rfind(b"\n", 0, -1) + 1
        if self._index[end:] != last_line(zlib.crc32(memoryview(self._index)[:end])):
            raise DataError(f"{path} is damaged: pack or copy the data again")
        # Millions of samples take 8 bytes each, and not a list of Python's objects.
        lengths = (len(line) for line in io.BytesIO(self._index))
        self._begins = array("Q", itertools.accumulate(lengths, initial=0))[:-1]
        # Archives stay open, and may be more than the 1024 files that shells allow.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._lock = threading.Lock()
        self._open: dict[int, int] = {}
        self._orders: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return len(self._begins) - 1

    def close(self) -> None:
        """Close the archives."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def read(self, number: int) -> tuple[str, bytes]:
        """Return name and content of a sample.

        Raises:
            DataError: it can't be read, or is not what was packed.

        """
        line = self._index[self._begins[number] : self._begins[number + 1]]
        where, offset, size, checksum, name = json.loads(line)
        path, content = self.folder / archive(where), b""
        try:
            file = self._archive(where)
            # Linux reads 2 GiB at a time at most.
            while more := os.pread(file, size - len(content), offset + len(content)):
                content += more
        except OSError as error:
            raise DataError(
                f"{path} can't be read ({error.strerror}): pack or copy the data again"
            ) from error
        if len(content) != size or zlib.crc32(content) != checksum:
            raise DataError(f"{name} in {path} is damaged: pack or copy the data again")
        return str(name), content

    def drawn(self, number: int) -> bytes:
        """Return the content of a sample in a random order, another one in each epoch.

        The order is the same in each process and run, so `number` counts all samples that all
        processes have seen, and a run that goes on sees what the undisturbed one would.
        """
        epoch, place = divmod(number, len(self))
        with self._lock:
            if epoch not in self._orders:
                if len(self._orders) > 1:
                    del self._orders[min(self._orders)]
                order = array("Q", range(len(self)))
                random.Random(epoch).shuffle(order)  # noqa: S311
                self._orders[epoch] = order
            drawn = self._orders[epoch][place]
        return self.read(drawn)[1]

    def _archive(self, number: int) -> int:
        """Return the file descriptor of an archive."""
        with self._lock:
            if number not in self._open:
                self._open[number] = os.open(self.folder / archive(number), os.O_RDONLY)
            return self._open[number]


def ahead(read: Callable[[int], T], numbers: Iterator[int]) -> Generator[T, None, None]:
    """Return what is read of each number, in their order; the next ones are read meanwhile."""
    pool = ThreadPoolExecutor(THREADS)
    try:
        waiting = deque(pool.submit(read, number) for number in itertools.islice(numbers, AHEAD))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(read, number) for number in itertools.islice(numbers, 1))
            yield done
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def batches(
    data: Packed,
    seen: int,
    place: tuple[int, int],
    size: int,
    decoded: Callable[[list[bytes]], T],
) -> Generator[T, None, None]:
    """Return what a process takes in each of its steps, without an end.

    Args:
        data: Of which it takes them.
        seen: How many samples all processes have taken before.
        place: Its rank, and how many processes there are.
        size: Of a batch.
        decoded: What makes a batch of samples, ahead too.

    """
    rank, processes = place
    firsts = itertools.count(seen + rank * size, processes * size)
    return ahead(lambda one: decoded([data.drawn(one + more) for more in range(size)]), firsts)


# -- the command ----------------------------------------------------------------------------------


def main() -> None:
    """Pack, or verify.

    Raises:
        DataError: it can't.

    """
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="make a sample of each file in a folder")
    packing.add_argument("files", type=Path)
    making = commands.add_parser("points", help="make points for ddp.py")
    making.add_argument("--samples", type=int, default=POINTS)
    verifying = commands.add_parser("verify", help="read all samples")
    for command in (packing, making, verifying):
        command.add_argument("folder", type=Path)
    for command in (packing, making):
        command.add_argument("--mib", type=int, default=ARCHIVE_MIB, help="size of an archive")
    options = parser.parse_args()
    if options.command == "verify":
        data = Packed(options.folder)
        total = sum(1 for number in range(len(data)) if data.read(number))
    else:
        found = options.command == "pack"
        samples = files_below(options.files) if found else points(options.samples)
        total = pack(samples, options.folder, options.mib)
    print(f"{options.folder}: {total} samples")


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(f"packed.py: {error}")
