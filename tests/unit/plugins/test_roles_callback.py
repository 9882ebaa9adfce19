"""What a person sees of a run: one line for each role, failures in full, the rest in the log."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PLANTED = "not-for-your-eyes"
ROLES: dict[str, list[dict[str, Any]]] = {
    "changes": [
        {"name": "Change it", "ansible.builtin.debug": {"msg": "a note"}, "changed_when": True}
    ],
    "skipped": [{"name": "Skip it", "ansible.builtin.debug": {"msg": 1}, "when": False}],
    "fails": [
        {"name": "Expect it", "ansible.builtin.fail": {"msg": 1}, "ignore_errors": True},
        {
            "name": "Break it",
            "ansible.builtin.fail": {"msg": "the reason, whole"},
            "when": "inventory_hostname == 'two'",
        },
        {
            "name": "Hide it",
            "ansible.builtin.fail": {"msg": PLANTED},
            "no_log": True,
            "when": "inventory_hostname == 'one'",
        },
    ],
}


@dataclass(frozen=True)
class Ran:
    """A run: its screen and its log."""

    code: int
    screen: str
    log: str
    log_path: Path


def run(folder: Path, plays: list[dict[str, Any]], *words: str, **more: str) -> Ran:
    (folder / "play.yml").write_text(yaml.safe_dump(plays))
    log = folder / "run.log"
    environment = {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "ansible/collections"),
        "ANSIBLE_STDOUT_CALLBACK": "muster.slurm.muster_roles",
        "ANSIBLE_LOG_PATH": str(log),
        "ANSIBLE_HOME": str(folder),
    }
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "--inventory", "one,two", "--connection", "local", "play.yml", *words],
        cwd=folder,
        env=os.environ | environment | more,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert log.exists(), done.stdout + done.stderr
    screen = done.stdout + done.stderr
    return Ran(done.returncode, screen, log.read_text(encoding="utf-8"), log)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("run")
    for role, tasks in ROLES.items():
        (folder / "roles" / role / "tasks").mkdir(parents=True)
        (folder / "roles" / role / "tasks/main.yml").write_text(yaml.safe_dump(tasks))
    plays = [
        {"name": name, "hosts": "all", "gather_facts": False, "roles": roles}
        for name, roles in (("First", ["changes", "skipped"]), ("Second", ["fails"]))
    ]
    return run(folder, plays)


def test_a_role_has_one_line_with_play_hosts_changes_and_seconds(ran: Ran) -> None:
    assert re.search(r"^changes +First +2 hosts +2 changed +\d+\.\d s$", ran.screen, re.MULTILINE)
    assert re.search(r"^fails +Second +2 hosts +\d+\.\d s$", ran.screen, re.MULTILINE)


def test_a_role_that_does_nothing_has_none(ran: Ran) -> None:
    assert "skipp" not in ran.screen
    assert "skipping: [one]" in ran.log


def test_a_failure_is_shown_in_full_once_with_its_task(ran: Ran) -> None:
    assert ran.code == 2
    assert ran.screen.count("Second: fails : Break it") == 1
    assert ran.screen.count("the reason, whole") >= 1
    assert "fatal: [two]: FAILED!" in ran.screen
    assert "failed: one, two" in ran.screen


def test_an_expected_failure_is_none(ran: Ran) -> None:
    assert "fails : Expect it" not in ran.screen
    assert "ignoring" not in ran.screen
    assert "Expect it" in ran.log


def test_what_tasks_say_is_shown(ran: Ran) -> None:
    assert ran.screen.count("  a note\n") == 2


def test_the_last_line_names_the_log_which_has_everything(ran: Ran) -> None:
    assert ran.screen.splitlines()[-1] == f"all that Ansible said: {ran.log_path}"
    for words in ("TASK [changes : Change it]", "PLAY RECAP", "the reason, whole"):
        assert words in ran.log


def test_a_secret_is_in_neither(ran: Ran) -> None:
    assert PLANTED not in ran.screen + ran.log


ATTACK = "\x1b]52;c;AAAA\a\x1b[2J\x9b2J\r\x1b[8m"
OF_A_HOST = f"""
from ansible.module_utils.basic import AnsibleModule

attack = {ATTACK!r}
module = AnsibleModule({{"fails": {{"type": "bool"}}}})
module.warn("the warning" + attack)
if module.params["fails"]:
    module.fail_json(msg="the failure" + attack, reason=attack)
change = {{"before": "one\\n", "after": "two\\tthe difference" + attack + "\\n"}}
module.exit_json(changed=True, said="the note" + attack + "\\nanother line", diff=change)
"""


def test_what_a_host_says_does_not_control_the_terminal(tmp_path: Path) -> None:
    """Root of a host decides what a module says there."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/says.py").write_text(OF_A_HOST)
    tasks = [
        {"says": {}, "register": "says"},
        {"ansible.builtin.debug": {"msg": "{{ says.said }}"}},
        {"ansible.builtin.debug": {"msg": ["{{ says.said }}"]}},
        {"says": {"fails": True}},
    ]
    python = {"ansible_python_interpreter": sys.executable}
    play = {"hosts": "one", "gather_facts": False, "vars": python, "tasks": tasks}
    ran = run(tmp_path, [play], "--diff", ANSIBLE_FORCE_COLOR="1")
    assert ran.code == 2
    for text in (ran.screen, ran.log):
        for words in ("the warning", "the failure", "the difference", "the note", "another line"):
            assert words in text
        left = re.sub(r"\x1b\[(0|0;3\d|1;3\d)m", "", text)
        assert [line for line in left.split("\n") if not line.replace("\t", "").isprintable()] == []
    # Differences keep their colours.
    assert "\x1b[0;32m+two\tthe difference" in ran.screen
