"""examples/ddp/packed.py: data in archives, in the same order for each run, read ahead."""

import itertools
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import example_jobs
import pytest

PROGRAM = example_jobs.EXAMPLES / "ddp/packed.py"


@pytest.fixture
def example() -> ModuleType:
    return example_jobs.module("ddp", "packed")


def packed(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def files(folder: Path, number: int = 20) -> dict[str, bytes]:
    """Make some files in two folders, one of them empty."""
    contents = {f"cats/{n:03}.jpg": bytes([n]) * (n * 100) for n in range(number - 1)}
    # A header of such a name takes several blocks.
    contents[f"dogs/{'long name ' * 20}\n.jpg"] = b"x"
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return contents


def test_what_is_packed_is_read_again_and_tar_has_it_too(
    example: ModuleType, tmp_path: Path
) -> None:
    contents = files(tmp_path / "files")
    done = packed("pack", tmp_path / "files", tmp_path / "data", "--mib", "0")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/data: 20 samples\n"), done.stderr
    data = example.Packed(tmp_path / "data")
    assert len(data) == 20
    assert dict(map(data.read, range(20))) == contents
    data.close()
    archives = sorted((tmp_path / "data").glob("*.tar"))
    assert len(archives) == 20
    for archive in archives:
        with tarfile.open(archive) as tar:
            tar.extractall(tmp_path / "out", filter="data")
    assert {n: (tmp_path / "out" / n).read_bytes() for n in contents} == contents


def test_an_archive_ends_when_it_has_its_size(example: ModuleType, tmp_path: Path) -> None:
    samples = ((f"{number}", bytes(400_000)) for number in range(10))
    assert example.pack(samples, tmp_path / "data", 1) == 10
    assert len(list((tmp_path / "data").glob("*.tar"))) == 4


def test_a_pack_that_is_ended_in_the_middle_is_none(example: ModuleType, tmp_path: Path) -> None:
    def some() -> Iterator[tuple[str, bytes]]:
        yield "one", b"1"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        example.pack(some(), tmp_path / "data")
    with pytest.raises(example.DataError, match=r"can't be read .*: pack the data first"):
        example.Packed(tmp_path / "data")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pack", "none", "data"], "there is no file to pack: name a folder that has some"),
        (["points", "files"], "files is not empty: remove it, or name another folder"),
        (["verify", "none"], "none/index.jsonl can't be read (No such file or directory): pack"),
        (["points", "files/cats/001.jpg/data"], "Not a directory"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    files(tmp_path / "files")
    command = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("packed.py: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("harm", ["other bytes", "cut", "gone", "index cut"])
def test_damaged_data_is_named_and_not_believed(
    example: ModuleType, tmp_path: Path, harm: str
) -> None:
    folder = tmp_path / "data"
    packed("points", folder, "--samples", "10")
    [archive] = folder.glob("*.tar")
    content = archive.read_bytes()
    if harm == "other bytes":
        archive.write_bytes(content[:600] + b"XX" + content[602:])
    elif harm == "cut":
        archive.write_bytes(content[:3000])
    elif harm == "gone":
        archive.unlink()
    else:
        index = folder / example.INDEX
        index.write_bytes(index.read_bytes()[:-10])
    done = packed("verify", folder)
    assert (done.returncode, done.stdout) == (1, "")
    wanted = {"other bytes": " is damaged: pack or copy the data again\n", "cut": " is damaged: "}
    assert wanted.get(harm, " can't be read: ") in done.stderr


# -- the order ------------------------------------------------------------------------------------


@pytest.fixture
def data(example: ModuleType, tmp_path: Path) -> Iterator[ModuleType]:
    example.pack(((f"{n}", f"{n}".encode()) for n in range(50)), tmp_path / "data")
    found = example.Packed(tmp_path / "data")
    yield found
    found.close()


def taken(
    example: ModuleType, data: object, seen: int, place: tuple[int, int], steps: int
) -> list[list[int]]:
    """Return the samples that a process takes, five in each step."""
    source = example.batches(data, seen, place, 5, lambda samples: [int(one) for one in samples])
    found = list(itertools.islice(source, steps))
    source.close()
    return found


def test_all_processes_together_see_each_sample_once_in_an_epoch_in_another_order(
    example: ModuleType, data: object
) -> None:
    both = [taken(example, data, 0, (rank, 2), 10) for rank in (0, 1)]
    epochs = [
        [n for rank in both for step in rank[begin : begin + 5] for n in step] for begin in (0, 5)
    ]
    assert [Counter(epoch) for epoch in epochs] == [Counter(range(50))] * 2
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])


def test_a_run_that_goes_on_sees_what_the_undisturbed_one_sees(
    example: ModuleType, data: object
) -> None:
    """Across the end of an epoch, too."""
    whole = taken(example, data, 0, (1, 3), 12)
    assert taken(example, data, 4 * 3 * 5, (1, 3), 8) == whole[4:]


def test_fewer_processes_go_on_with_what_none_has_seen(example: ModuleType, data: object) -> None:
    seen = [n for rank in (0, 1) for step in taken(example, data, 0, (rank, 2), 3) for n in step]
    rest = [n for step in taken(example, data, 30, (0, 1), 4) for n in step]
    assert Counter(seen + rest) == Counter(range(50))


# -- reading ahead --------------------------------------------------------------------------------


def test_some_are_read_before_they_are_wanted_and_no_more(example: ModuleType) -> None:
    read: list[int] = []
    there = threading.Event()

    def slow(number: int) -> int:
        read.append(number)
        if len(read) == example.AHEAD:
            there.set()
        return number

    source = example.ahead(slow, itertools.count())
    assert next(source) == 0
    assert there.wait(10)
    # With what the first one made room for.
    assert next(source) == 1
    source.close()
    assert sorted(read)[: example.AHEAD] == list(range(example.AHEAD))
    assert len(read) <= example.AHEAD + 2


def test_an_error_comes_at_its_place(example: ModuleType) -> None:
    def read(number: int) -> int:
        if number == 3:
            raise example.DataError("damaged")
        return number

    source = example.ahead(read, itertools.count())
    assert list(itertools.islice(source, 3)) == [0, 1, 2]
    with pytest.raises(example.DataError, match="damaged"):
        next(source)
