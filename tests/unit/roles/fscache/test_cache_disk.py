"""When the disk of a node's cache is formatted; the programs that look and format are simulated."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FILES = Path(__file__).parents[4] / "roles/fscache/files"
MIB = 2**20


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program, on whose disks libblkid recognises nothing."""
    monkeypatch.syspath_prepend(str(FILES))
    name = "muster_cache_disk"
    spec = importlib.util.spec_from_file_location(name, FILES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "content", lambda _: None)
    yield module
    sys.modules.pop("disks", None)


@pytest.fixture
def commands(program: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the program has run."""
    run: list[str] = []

    def note(*command: str, **_: Any) -> tuple[int, str]:
        run.append(" ".join(command))
        return 0, ""

    monkeypatch.setattr(program, "run", note)
    return run


def disk(folder: Path, *places: int) -> str:
    """Return a disk of 200 MiB that is zero but for a byte at each place."""
    path = folder / "nvme1n1"
    with path.open("wb") as stream:
        stream.truncate(200 * MIB)
        for place in places:
            stream.seek(place)
            stream.write(b"x")
    return str(path)


def test_a_disk_of_zeros_gets_a_file_system(
    program: Any, commands: list[str], tmp_path: Path
) -> None:
    device = disk(tmp_path)
    assert list(program.Device(device).provide(act=True)) == [f"{device}: make a file system"]
    assert commands == [f"mkfs.ext4 -q -F -m 0 -L muster-cache {device}"]


@pytest.mark.parametrize("act", [True, False])
@pytest.mark.parametrize("place", [0, 7 * MIB, 128 * MIB, 200 * MIB - 1])
def test_a_disk_with_anything_on_it_that_libblkid_does_not_know_is_refused(
    program: Any, commands: list[str], tmp_path: Path, place: int, act: bool
) -> None:
    device = disk(tmp_path, place)
    with pytest.raises(program.DiskError) as refusal:
        list(program.Device(device).provide(act=act))
    assert str(refusal.value) == (
        f"{device} holds something that is no file system, so it is not formatted; if nothing on "
        f"it is needed, blkdiscard --zeroout {device}, and run again (a node in the cloud: power "
        "it down, and SLURM makes another)"
    )
    assert commands == []


def test_what_is_known_is_named_with_what_makes_the_disk_blank(
    program: Any, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = disk(tmp_path)
    monkeypatch.setattr(program, "content", lambda _: program.Content("ext4", "photos"))
    with pytest.raises(
        program.DiskError,
        match=f"ext4 labelled photos.*wipefs --all {device} && .*--zeroout {device}, and",
    ):
        list(program.Device(device).provide(act=True))
    assert commands == []
