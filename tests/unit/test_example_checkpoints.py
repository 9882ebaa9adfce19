"""examples/ddp/checkpoints.py: what a killed or full run leaves, and what is believed of it."""

import errno
import hashlib
import threading
from pathlib import Path
from typing import Any

import example_jobs
import pytest

example = example_jobs.module("ddp", "checkpoints")


def checkpoints(folder: Path, **options: int) -> Any:
    return example.Checkpoints(folder, **options)


def newest(kept: Any) -> tuple[int, bytes]:
    """Return number and content of the newest one that is whole."""
    name = kept.newest()
    return int(name.partition("-")[0]), kept.read(name, 0)


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "none").newest() is None


def test_the_newest_ones_stay_and_the_newest_is_read(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path / "new", keep=2)
    for number in (900, 1000, 11000):
        kept.save(number, f"step {number}".encode())
    assert newest(kept) == (11000, b"step 11000")
    assert len(list(kept.folder.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"step 2", b"step 2000 and more", b"stEp 2000"])
def test_a_damaged_one_is_named_and_the_one_before_it_is_taken(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = checkpoints(tmp_path)
    kept.save(1000, b"step 1000")
    kept.save(2000, b"step 2000")
    [damaged] = tmp_path.glob("0000002000-*")
    damaged.write_bytes(content)
    assert newest(kept) == (1000, b"step 1000")
    assert f"{damaged} is damaged" in capsys.readouterr().out


def test_one_that_can_t_be_read_is_not_passed_over(tmp_path: Path) -> None:
    """A file server that fails for a moment would make the training start from step 0."""
    kept = checkpoints(tmp_path)
    kept.save(1000, b"step 1000")
    path = tmp_path / f"{2000:010}-{'0' * 64}.ckpt"
    path.mkdir()
    sentence = rf"{path} can't be read \(Is a directory\): "
    with pytest.raises(example.CheckpointError, match=sentence):
        kept.newest()
    with pytest.raises(example.CheckpointError, match=r"can't be read \(Is a directory\) on "):
        kept.read(path.name, 0)


def test_a_run_that_ends_while_it_writes_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = checkpoints(tmp_path, keep=1)
    kept.save(1000, b"step 1000")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        sentence = rf"{tmp_path} can't be written \(No space left on device\): make room there"
        with pytest.raises(example.CheckpointError, match=sentence):
            kept.save(2000, b"step 2000")
    assert newest(kept) == (1000, b"step 1000")
    # Half a checkpoint would keep the disk full.
    assert len(list(tmp_path.iterdir())) == 1
    # What a run that is killed leaves does not stop the next one.
    (tmp_path / "new").write_bytes(b"half")
    kept.save(2000, b"step 2000")
    assert newest(kept) == (2000, b"step 2000")


def test_a_node_that_does_not_see_the_file_yet_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "POLL_SECONDS", 0.02)
    writer, reader = checkpoints(tmp_path), checkpoints(tmp_path)
    name = f"{1000:010}-{hashlib.sha256(b'step 1000').hexdigest()}.ckpt"
    late = threading.Timer(0.2, writer.save, (1000, b"step 1000"))
    late.start()
    assert reader.read(name, 30) == b"step 1000"
    late.join()


@pytest.mark.parametrize(("content", "why"), [(None, "is not there"), (b"st", "is not whole")])
def test_a_node_that_never_sees_it_whole_says_so_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    monkeypatch.setattr(example, "POLL_SECONDS", 0.02)
    name = f"{1000:010}-{hashlib.sha256(b'step 1000').hexdigest()}.ckpt"
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(example.CheckpointError, match=f"{why} on .*all nodes of the job"):
        checkpoints(tmp_path).read(name, 0.1)


@pytest.mark.parametrize("name", ["../new", "new", f"{1000:010}-{'0' * 64}.ckpt/../new"])
def test_what_is_no_name_of_a_checkpoint_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "new").write_bytes(b"")
    with pytest.raises(example.CheckpointError, match="is no name of a checkpoint"):
        checkpoints(tmp_path).read(name, 0)


def test_one_that_another_process_has_too_may_be_older(tmp_path: Path) -> None:
    found = checkpoints(tmp_path)
    for step in (1000, 2000, 3000):
        found.save(step, str(step).encode())
    for most, step in {2999: 2000, 3000: 3000, None: 3000}.items():
        name = found.newest(most)
        assert name is not None
        assert found.read(name, 0) == str(step).encode()
    assert found.newest(999) is None


def test_a_run_that_goes_on_has_none_of_later_steps(tmp_path: Path) -> None:
    found = checkpoints(tmp_path / "none")
    found.begin(0)
    for step in (1000, 2000, 3000):
        found.save(step, str(step).encode())
    found.begin(2000)
    assert [path.name[:10] for path in sorted(found.folder.iterdir())] == [
        "0000001000",
        "0000002000",
    ]
