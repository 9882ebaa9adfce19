"""examples/ddp/checkpoints.py: what a killed or full run leaves, and what is believed of it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from documentation import ROOT


def checkpoints(folder: Path, **options: int) -> Any:
    path = ROOT / "examples/ddp/checkpoints.py"
    spec = importlib.util.spec_from_file_location("checkpoints", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Checkpoints(folder, **options)


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "none").newest() is None


def test_the_newest_ones_stay_and_the_newest_is_read(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path / "new", keep=2)
    for number in (900, 1000, 11000):
        kept.save(number, f"step {number}".encode())
    assert kept.newest() == (11000, b"step 11000")
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
    assert kept.newest() == (1000, b"step 1000")
    assert f"{damaged} is damaged" in capsys.readouterr().out


def test_a_run_that_is_killed_while_it_writes_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = checkpoints(tmp_path, keep=1)
    kept.save(1000, b"step 1000")

    def full(_: int) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            kept.save(2000, b"step 2000")
    assert kept.newest() == (1000, b"step 1000")
    # What is left of it does not stop the next one.
    kept.save(2000, b"step 2000")
    assert kept.newest() == (2000, b"step 2000")
