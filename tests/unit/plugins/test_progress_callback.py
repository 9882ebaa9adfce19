"""What the callback plugin tells of a real run of ansible-playbook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PLANTED = "not-for-your-eyes"


def events(tmp_path: Path, tasks: list[dict]) -> list[dict[str, str]]:
    """Run tasks on this machine; return the lines that the plugin wrote."""
    play = {"name": "Trial", "hosts": "localhost", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    reading, writing = os.pipe()
    environment = {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "ansible/collections"),
        "ANSIBLE_CALLBACKS_ENABLED": "muster.slurm.muster_progress",
        "ANSIBLE_HOME": str(tmp_path),
        "MUSTER_PROGRESS_FD": str(writing),
    }
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    inventory = ["--inventory", "localhost,", "--connection", "local"]
    done = subprocess.run(
        [program, *inventory, "play.yml"],
        cwd=tmp_path,
        env=os.environ | environment,
        pass_fds=[writing],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading) as lines:
        records = [json.loads(line) for line in lines]
    assert records, done.stdout + done.stderr
    return records


def fail(name: str, msg: object, **more: object) -> dict:
    return {"name": name, "ansible.builtin.fail": {"msg": msg}, **more}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return events(
        tmp_path_factory.mktemp("run"),
        [
            {"name": "Look around", "ansible.builtin.debug": {"msg": "nothing here"}},
            {"name": "Run what fails", "ansible.builtin.debug": {"msg": 1}, "failed_when": True}
            | {"ignore_errors": True},
            {
                "block": [
                    {"name": "Fail first", "ansible.builtin.debug": {"msg": "the cause"}}
                    | {"failed_when": True}
                ],
                "rescue": [fail("Say why", ["first line", "second\nline"])],
            },
        ],
    )


def test_titles_come_as_tasks_begin(seen: list[dict[str, str]]) -> None:
    titles = [event["task"] for event in seen if "failed" not in event]
    # Those that only end a run are no step of it.
    assert titles == ["Look around", "Run what fails", "Fail first"]


def test_last_failure_is_the_one_that_ends_the_run(seen: list[dict[str, str]]) -> None:
    failures = [event for event in seen if "failed" in event]
    assert failures == [
        {"task": "Fail first", "failed": "the cause"},
        {"task": "Say why", "failed": "first line second line"},
    ]


def test_task_with_no_log_tells_nothing(tmp_path: Path) -> None:
    (*_, last) = events(tmp_path, [fail("Keep it", PLANTED, no_log=True)])
    assert last["task"] == "Keep it"
    assert PLANTED not in last["failed"]
    assert "no_log" in last["failed"]


def test_failed_items_of_a_loop_speak_for_themselves(tmp_path: Path) -> None:
    loop = fail("Try each", "no {{ item }}", loop=["bread", "butter"])
    (*_, last) = events(tmp_path, [loop])
    assert last["failed"] == "no bread"
