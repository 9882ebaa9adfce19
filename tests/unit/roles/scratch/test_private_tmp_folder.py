"""What a job without a private /tmp gets, and what is removed of one that has ended."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/scratch/files/usr/local/lib/muster/scratch.py"
SPEC = importlib.util.spec_from_file_location("scratch_of_private_tmp", PROGRAM)
assert SPEC is not None and SPEC.loader is not None
scratch = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scratch)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody, as root")


@pytest.fixture
def private(tmp_path: Path) -> Any:
    return scratch.PrivateTmp(str(tmp_path / "base/node1"))


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@as_root
def test_later_steps_of_a_job_without_one_are_led_to_the_node_s(private: Any) -> None:
    for _ in range(2):
        scratch.prepare(private, "7", plugin=False)
    folder = Path(private.jobs.root) / "7"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [".ns"]
    assert str((folder / ".ns").readlink()) == "/proc/1/ns/mnt"
    private.clear("7")
    assert left(Path(private.jobs.root)) == []


@as_root
def test_where_slurm_makes_one_the_program_makes_none(private: Any) -> None:
    scratch.prepare(private, "7", plugin=True)
    assert left(Path(private.jobs.root)) == []


@as_root
@pytest.mark.parametrize("trap", ["somebody's", "writable", "link"])
def test_a_folder_of_somebody_else_is_not_used(private: Any, tmp_path: Path, trap: str) -> None:
    base, other = tmp_path / "base", tmp_path / "other"
    other.mkdir()
    if trap == "link":
        base.symlink_to(other)
    else:
        base.mkdir()
        base.chmod(0o777 if trap == "writable" else 0o755)
        os.chown(base, 65534 if trap == "somebody's" else 0, -1)
    with pytest.raises(scratch.ScratchError, match="base is not root's alone"):
        scratch.prepare(private, "7", plugin=True)
    # Where jobs share /tmp anyway, none is kept from starting.
    scratch.prepare(private, "7", plugin=False)
    assert list(other.iterdir()) == []
    assert trap == "link" or list(base.iterdir()) == []


@as_root
def test_what_a_crash_left_is_removed_with_the_job_or_after_the_boot(private: Any) -> None:
    root = Path(private.jobs.root)
    for job in ("7", "8"):
        (root / job / f".{job}").mkdir(parents=True)
        (root / job / f".{job}/file").touch()
    private.clear("7")
    private.clear("7")
    assert left(root) == ["8"]
    private.jobs.booted = float("inf")
    root.chmod(0o755)
    root.parent.chmod(0o755)
    private.make_ready()
    assert left(root) == []


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("/usr/lib/x86_64-linux-gnu/slurm-wlm/job_container_tmpfs.so", True),
        ("/usr/lib/x86_64-linux-gnu/slurm-wlm/namespace_tmpfs.so", True),
        ("/usr/lib/x86_64-linux-gnu/slurm-wlm/job_container_none.so", False),
        ("/usr/lib/x86_64-linux-gnu/slurm-wlm/job_container_tmpfs.so (deleted)", True),
    ],
)
def test_what_counts_is_what_slurmd_has_loaded(
    tmp_path: Path, library: str, expected: bool
) -> None:
    # The program, the shell that started it, slurmd.
    for process, parent, mapped in ((9, 8, "python"), (8, 5, "sh"), (5, 1, library)):
        folder = tmp_path / str(process)
        folder.mkdir()
        (folder / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 7 {mapped}\n")
        (folder / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    assert scratch.has_plugin(9, str(tmp_path)) is expected


def test_a_slurmd_that_has_ended_fails_no_prolog(tmp_path: Path) -> None:
    assert scratch.has_plugin(9, str(tmp_path)) is False
