"""What is missing gets built in its order, by the program that closes builds off."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

# Without what closes builds off, which tests/unit/roles/software and tests/roles test.
PROGRAM = """[ "$1" = --timeout ] || exit 9
echo "$2" >>"$(dirname "$0")/timeouts"
mkdir -p "$3"
/bin/sh -ec "$4" >&2"""


@pytest.fixture
def build(run_module: Run, stand_ins: Callable[[Mapping[str, str]], str], tmp_path: Path) -> Run:
    """Return `build([(folder, command)], ...)`, which runs the module."""
    (tmp_path / "bin").mkdir()
    path = stand_ins({"bin/muster-build": PROGRAM}).replace(str(tmp_path), str(tmp_path / "bin"))

    def run(*wanted: tuple[Path, str | None], check: bool = False, **more: Any) -> Any:
        installations = [{"root": str(root), "build": command} for root, command in wanted]
        arguments = {"installations": installations, **more}
        return run_module("software_build", arguments, check=check, env={"PATH": path})

    return run


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    return tmp_path / "apps"


def test_what_is_missing_is_built_once(build: Run, apps: Path) -> None:
    first = build((apps / "b", f"touch {apps}/b/1"), (apps / "a", f"touch {apps}/b/2"))
    assert first["changed"]
    assert first["paths"] == [str(apps / "b"), str(apps / "a")]
    assert (apps / "b/2").exists()
    assert not build((apps / "b", f"touch {apps}/b/3"))["changed"]
    assert not (apps / "b/3").exists()


def test_what_was_not_built_to_its_end_is_built_again(build: Run, apps: Path) -> None:
    (apps / "tool").mkdir(parents=True)
    (apps / "tool.building").touch()
    assert build((apps / "tool", "true"))["changed"]


def test_without_a_command_nothing_is_built(build: Run, apps: Path) -> None:
    assert not build((apps / "tool", None))["changed"]
    assert not apps.exists()


def test_check_mode_names_what_it_would_build(build: Run, apps: Path) -> None:
    shown = build((apps / "tool", "true"), check=True)
    assert shown["changed"]
    assert shown["paths"] == [str(apps / "tool")]
    assert not apps.exists()


def test_after_a_failure_what_was_built_before_stays(build: Run, apps: Path) -> None:
    failed = build((apps / "good", "true"), (apps / "bad", "echo why; exit 1"))
    assert failed["failed"]
    assert failed["paths"] == [str(apps / "good")]
    assert failed["msg"] == "why"


def test_the_program_gets_the_time_that_one_build_may_take(
    build: Run, apps: Path, tmp_path: Path
) -> None:
    build((apps / "tool", "true"), timeout_seconds=7)
    assert (tmp_path / "bin/timeouts").read_text() == "7\n"


def test_without_the_program_nothing_is_built(run_module: Run, apps: Path) -> None:
    arguments = {"installations": [{"root": str(apps / "tool"), "build": "true"}]}
    refused = run_module("software_build", arguments, env={"PATH": "/usr/bin:/bin"})
    assert refused["failed"]
    assert "there is no program muster-build on this host; run the role software" in refused["msg"]
    assert not apps.exists()
