"""Locks of files that others remove while somebody waits for them."""

import errno
import os
from pathlib import Path

import model_library  # noqa: F401 (makes muster_models known)
import pytest
from muster_models import durable


@pytest.fixture
def handle(tmp_path: Path):
    opened = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def test_a_file_is_at_its_own_path_alone(handle: int, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    assert durable._is_at(handle, str(tmp_path / "lock"))
    assert not durable._is_at(handle, str(tmp_path / "other"))
    assert not durable._is_at(handle, str(tmp_path / "none"))


def test_a_removed_file_is_nowhere_even_if_another_one_has_its_number(
    handle: int, tmp_path: Path
) -> None:
    (tmp_path / "lock").unlink()
    # A path with the number of the removed file: on a file server a new file may have it.
    path = f"/proc/self/fd/{handle}"
    assert os.path.samestat(Path(path).stat(), os.fstat(handle))
    assert not durable._is_at(handle, path)


def test_a_file_that_another_host_has_removed_is_nowhere(
    handle: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_: int) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patched:  # pytest itself asks too
        patched.setattr(os, "fstat", stale)
        there = durable._is_at(handle, str(tmp_path / "lock"))
    assert not there


def test_other_errors_are_not_hidden(handle: int, tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        durable._is_at(handle, str(tmp_path / "lock/below"))
