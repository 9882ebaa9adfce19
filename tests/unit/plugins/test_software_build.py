"""What is missing gets built in its place, and a build that does not end well leaves nothing."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def wanted(root: Path, build: str | None, **more: Any) -> dict[str, Any]:
    return {"installations": [{"root": str(root), "build": build}], **more}


def making(root: Path) -> str:
    return f"mkdir {root}; echo new > {root}/what"


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_is_missing_is_built_once(run_module: Run, tmp_path: Path) -> None:
    root = tmp_path / "apps/python/3"
    first = run_module("software_build", wanted(root, making(root)))
    assert first["changed"]
    assert first["paths"] == [str(root)]
    assert (root / "what").read_text() == "new\n"
    assert left(tmp_path) == ["apps", "apps/python", "apps/python/3", "apps/python/3/what"]
    assert not run_module("software_build", wanted(root, making(root)))["changed"]


def test_what_is_there_is_not_touched(run_module: Run, tmp_path: Path) -> None:
    root = tmp_path / "tool"
    root.mkdir()
    assert not run_module("software_build", wanted(root, making(root)))["changed"]
    assert left(root) == []


def test_without_a_command_nothing_is_built(run_module: Run, tmp_path: Path) -> None:
    assert not run_module("software_build", wanted(tmp_path / "tool", None))["changed"]
    assert left(tmp_path) == []


def test_check_mode_names_what_it_would_build(run_module: Run, tmp_path: Path) -> None:
    root = tmp_path / "tool"
    shown = run_module("software_build", wanted(root, making(root)), check=True)
    assert shown["changed"]
    assert shown["paths"] == [str(root)]
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("build", "timeout", "said"),
    [
        ("mkdir {root}; echo no space >&2; exit 3", 60, "exit status 3: no space"),
        ("mkdir {root}; false; echo unreached", 60, "exit status 1"),
        ("mkdir {root}; sleep 60 & sleep 60", 1, "it did not end within 1 s"),
        ("true", 60, "the command ended well, but made no such folder"),
    ],
    ids=["fails", "fails in the middle", "hangs", "makes nothing"],
)
def test_a_failed_build_leaves_nothing_and_says_why(
    run_module: Run, tmp_path: Path, build: str, timeout: int, said: str
) -> None:
    root = tmp_path / "tool"
    command = build.format(root=root)
    failed = run_module("software_build", wanted(root, command, timeout_seconds=timeout))
    assert failed["failed"]
    assert f"{root} was not built" in failed["msg"]
    assert said in failed["msg"]
    assert f"`{command}`" in failed["msg"]
    assert left(tmp_path) == []


def test_after_a_failure_what_was_built_before_stays(run_module: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    both = [{"root": str(good), "build": making(good)}, {"root": str(bad), "build": "false"}]
    failed = run_module("software_build", {"installations": both})
    assert failed["failed"]
    assert failed["paths"] == [str(good)]
    assert left(tmp_path) == ["good", "good/what"]


def test_a_build_that_was_killed_is_started_again(run_module: Run, tmp_path: Path) -> None:
    root = tmp_path / "tool"
    half = f"mkdir {root}; echo half > {root}/half; kill -9 $PPID"
    assert run_module("software_build", wanted(root, half)).code < 0
    assert left(tmp_path) == ["tool", "tool.building", "tool/half"]

    assert run_module("software_build", wanted(root, making(root)))["changed"]
    assert left(tmp_path) == ["tool", "tool/what"]


def test_two_runs_do_not_build_the_same(run_module: Run, tmp_path: Path) -> None:
    root = tmp_path / "tool"
    root.mkdir()
    with (tmp_path / "tool.building").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        failed = run_module("software_build", wanted(root, making(root)))
    assert failed["failed"]
    assert f"{root} is being built by another run" in failed["msg"]
    assert root.is_dir()


def test_a_folder_that_can_not_be_made_is_named(run_module: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root = tmp_path / "file" / "tool"
    failed = run_module("software_build", wanted(root, making(root)))
    assert failed["failed"]
    assert str(tmp_path / "file") in failed["msg"]
