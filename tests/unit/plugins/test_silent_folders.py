"""Modules that look at folders of a server end in time while it is away, with a sentence."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
StandIns = Callable[[Mapping[str, str]], str]

BOUND = """
from ansible_collections.muster.slurm.plugins.module_utils import mount_table
mount_table.SECONDS = 1
"""
SAID = "{} does not answer within 1 s; bring the server that has it back, and run again"

LOOKS: dict[str, dict[str, Any]] = {
    "people": {
        "groups": [],
        "people": [{"name": "ada", "uid": 20001}],
        "home_root": "{folder}",
        "create_homes": True,
    },
    "group_folders": {"folders": [{"path": "{folder}", "group": "root"}]},
    "software_build": {"installations": [{"root": "{folder}", "build": "mkdir {folder}"}]},
    "module_tree": {"path": "{folder}", "cache": "/nonexistent", "files": {}},
    "managed_files": {"files": [{"dest": "{folder}/passwd", "content": ""}]},
}


def given(module: str, folder: Path) -> dict[str, Any]:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        return value.format(folder=folder) if isinstance(value, str) else value

    return {key: filled(value) for key, value in LOOKS[module].items()}


@pytest.mark.parametrize("module", LOOKS)
def test_a_folder_that_does_not_answer_ends_the_task(
    run_module: Run, stand_ins: StandIns, tmp_path: Path, module: str
) -> None:
    path = stand_ins({"stat": f"echo $$ >{tmp_path}/pid; exec sleep 60"})
    folder = tmp_path / "away"
    begin = time.monotonic()
    done = run_module(module, given(module, folder), env={"PATH": path}, before=BOUND)
    assert time.monotonic() - begin < 30
    assert done["failed"]
    assert done["msg"] == SAID.format(folder)
    assert not folder.exists()
    # Nothing goes on waiting that can be ended.
    assert not is_running(int((tmp_path / "pid").read_text()))


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_of_a_missing_folder_the_one_above_must_answer(
    run_module: Run, stand_ins: StandIns, tmp_path: Path
) -> None:
    missing = tmp_path / "apps/python/3"
    path = stand_ins({"stat": f'case "$*" in *{missing}) exit 1 ;; esac; exec sleep 60'})
    done = run_module(
        "software_build", given("software_build", missing), env={"PATH": path}, before=BOUND
    )
    assert done["msg"] == SAID.format(missing.parent)


def test_what_nobody_builds_here_is_not_looked_at(
    run_module: Run, stand_ins: StandIns, tmp_path: Path
) -> None:
    path = stand_ins({"stat": "exec sleep 60"})
    done = run_module(
        "software_build",
        {"installations": [{"root": str(tmp_path), "build": None}]},
        env={"PATH": path},
        before=BOUND,
    )
    assert not done["changed"]


def test_a_folder_of_somebody_else_that_modules_point_to_must_answer(
    run_module: Run, stand_ins: StandIns, tmp_path: Path
) -> None:
    theirs = tmp_path / "matlab"
    path = stand_ins({"stat": f'case "$*" in *{theirs}) exec sleep 60 ;; esac'})
    here = {"path": f"{tmp_path}/modules", "cache": f"{tmp_path}/cache", "files": {}}
    done = run_module(
        "module_tree", here | {"watch": [str(theirs)]}, env={"PATH": path}, before=BOUND
    )
    assert done["msg"] == SAID.format(theirs)


@pytest.mark.skipif(os.getuid() != 0, reason="the module reads /etc/shadow")
def test_a_host_that_makes_no_homes_waits_for_none(
    run_module: Run, stand_ins: StandIns, tmp_path: Path
) -> None:
    path = stand_ins({"stat": "exec sleep 60"})
    wanted = given("people", tmp_path / "away") | {"create_homes": False}
    done = run_module("people", wanted, env={"PATH": path}, before=BOUND, check=True)
    assert done["changed"]
    # Nor is a shell said to be missing that may lie on a server.
    assert "not installed here" not in done.printed
