"""examples/ddp/packed.py: data in archives, in the same order for each run, read ahead."""

import errno
import itertools
import os
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


def test_an_archive_ends_when_it_has_its_size_and_says_how_far_it_is(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = ((f"{number}", bytes(400_000)) for number in range(10))
    assert example.pack(samples, tmp_path / "data", 1) == 10
    assert len(list((tmp_path / "data").glob("*.tar"))) == 4
    told = [(0, 3), (1, 6), (2, 9), (3, 10)]
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/data/0000{number}.tar: {total} samples so far" for number, total in told
    ]


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
        (["pack", "none", "data"], "none can't be read (No such file or directory): name a folder"),
        (["pack", "files/cats/001.jpg", "data"], "can't be read (Not a directory): name a folder"),
        (["points", "data", "--samples", "0"], "there is nothing to pack: name a folder that has"),
        (["points", "files"], "files is not an empty folder: remove it, or name another one"),
        (["verify", "none"], "none/index.jsonl can't be read (No such file or directory): pack"),
        (["points", "files/cats/001.jpg"], "001.jpg is not an empty folder: remove it, or name"),
        (["points", "files/cats/001.jpg/data"], "data can't be written (Not a directory): make"),
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


INDEX_HARMS = {
    "index cut in a line": lambda lines: b"".join(lines)[:-10],
    # Else a training would go on with fewer samples, and nobody would know.
    "index cut after a line": lambda lines: b"".join(lines[:7]),
    "a line of the index is gone": lambda lines: b"".join(lines[:3] + lines[4:]),
    "another number in the index": lambda lines: b"".join(lines).replace(b"256", b"255", 1),
    "a line too many": lambda lines: b"".join([*lines, b"5\n"]),
    "an empty index": lambda lines: b"".join(lines[:0]),
}


@pytest.mark.parametrize("harm", ["other bytes", "cut", "gone", *INDEX_HARMS])
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
        index.write_bytes(INDEX_HARMS[harm](index.read_bytes().splitlines(keepends=True)))
    done = packed("verify", folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert {
        "other bytes": f".f32 in {archive} is damaged: pack or copy the data again\n",
        "cut": f".f32 in {archive} is damaged: pack or copy the data again\n",
        "gone": f"{archive} can't be read (No such file or directory): pack or copy the data",
    }.get(harm, "/index.jsonl is damaged: pack or copy the data again\n") in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("full_at", [1, 3, 6])
def test_a_full_disk_while_packing_is_told_and_leaves_room(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    """At a first archive, at a later one, and at the index."""
    synced: list[int] = []

    def full(file: int) -> None:
        synced.append(file)
        if len(synced) == full_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    samples = [(f"{number}", b"1") for number in range(5)]
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(example.DataError, match=r"\(No space left on device\): make room"):
            example.pack(samples, tmp_path / "data", 0)
    assert list((tmp_path / "data").iterdir()) == []
    assert example.pack(samples, tmp_path / "data", 0) == 5


def test_who_packs_at_the_same_time_is_told_and_removes_nothing(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"

    def some() -> Iterator[tuple[str, bytes]]:
        yield "one", b"1"
        # Both have found the folder empty.
        with monkeypatch.context() as patched:
            patched.setattr(Path, "iterdir", lambda _: iter(()))
            with pytest.raises(example.DataError, match="is not an empty folder"):
                example.pack([("two", b"2")], folder)
        yield "three", b"3"

    assert example.pack(some(), folder) == 2
    data = example.Packed(folder)
    assert [data.read(number) for number in range(2)] == [("one", b"1"), ("three", b"3")]


def test_a_folder_that_can_t_be_read_is_not_left_out(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path / "files")
    look = os.scandir

    def refused(path: str) -> object:
        if Path(path).name == "dogs":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return look(path)

    monkeypatch.setattr("os.scandir", refused)
    with pytest.raises(example.DataError, match=r"files/dogs can't be read \(Permission denied\)"):
        example.pack(example.files_below(tmp_path / "files"), tmp_path / "data")


@pytest.mark.parametrize(
    ("leads_to", "sentence"),
    [("cats", "files/link is a link to a folder, and would"), ("none", "files/link can't be read")],
)
def test_a_link_is_not_left_out(tmp_path: Path, leads_to: str, sentence: str) -> None:
    files(tmp_path / "files")
    link = tmp_path / "files/link"
    link.symlink_to(tmp_path / "files/cats/001.jpg")
    assert packed("pack", tmp_path / "files", tmp_path / "one").stdout.endswith(": 21 samples\n")
    link.unlink()
    link.symlink_to(tmp_path / "files" / leads_to)
    done = packed("pack", tmp_path / "files", tmp_path / "data")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").iterdir()) == []


def test_what_is_packed_into_the_folder_itself_is_not_packed_again(tmp_path: Path) -> None:
    files(tmp_path)
    done = packed("pack", tmp_path, tmp_path / "packed", "--mib", "0")
    assert done.stdout == f"{tmp_path}/packed: 20 samples\n", done.stderr


def test_more_archives_than_files_that_a_shell_may_open(tmp_path: Path) -> None:
    packed("points", tmp_path / "data", "--samples", "100", "--mib", "0")
    soft = f"ulimit -Sn 64 && {sys.executable} {PROGRAM} verify {tmp_path}/data"
    done = subprocess.run(["bash", "-c", soft], capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/data: 100 samples\n", done.stderr


def test_a_read_that_returns_less_is_continued(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux returns 2 GiB at a time at most."""
    example.pack([("large", bytes(range(250)) * 4)], tmp_path / "data")
    read = os.pread
    monkeypatch.setattr("os.pread", lambda file, size, at: read(file, min(size, 300), at))
    assert example.Packed(tmp_path / "data").read(0) == ("large", bytes(range(250)) * 4)


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
