"""What a person sees of a long build, in real runs of ansible-playbook on this machine."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]

# ansible-playbook, with minutes of its first argument's seconds.
PLAYBOOK = """
import sys
from ansible.cli.playbook import main
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible_collections.muster.slurm.plugins.action import software_build
software_build.EVERY_S = float(sys.argv.pop(1))
sys.argv[0] = "ansible-playbook"
main()
"""

# In the places of the program that builds, and of the one that looks at its log.
BUILDS = """until [ -e "$(dirname "$0")/go" ] || [ "$3" != "${3%quick}" ]; do sleep 0.1; done
[ "$4" != "exit 1" ] || { echo why >&2; exit 1; }
mkdir -p "$3"; """
LOOKS = """here=$(dirname "$0")
echo "$@" >>$here/looks
case $(wc -l <$here/looks) in
1) printf '+ pip install torch\\n\\033[32mCollecting torch\\033[0m\\r  12 of 90 MB\\a\\n\\n' ;;
2) echo "tail: cannot open: No such file" >&2; exit 1 ;;
*) touch $here/go ;;
esac"""

# A host behind ssh, and how Ansible becomes root there.
SSH = """for last; do :; done
exec /bin/sh -c "$last\""""
SUDO = """until [ "$1" = /bin/sh ]; do shift; done
exec "$@\""""


@dataclass(frozen=True)
class Ran:
    """A run: its exit code, what it printed, and what the task gave."""

    code: int
    printed: str
    result: Mapping[str, Any]

    @property
    def said(self) -> list[str]:
        """The lines of builds."""
        return [line for line in self.printed.splitlines() if line.startswith("one builds ")]


@pytest.fixture
def run(stand_ins: Callable[[Mapping[str, str]], str], tmp_path: Path) -> Callable[..., Ran]:
    """Return `run([installation], ...)`, which runs the task in a role, as site.yml does."""
    path = stand_ins({"muster-build": BUILDS, "tail": LOOKS, "ssh": SSH, "sudo": SUDO})
    tasks = tmp_path / "roles/software/tasks"

    def run(
        *installations: dict[str, Any],
        minute_s: float = 60,
        way: str = "local",
        terminal: bool = False,
        **more: Any,
    ) -> Ran:
        task = {"muster.slurm.software_build": {"installations": [*installations]}, **more}
        keep = {"content": "{{ built | to_json }}", "dest": str(tmp_path / "result")}
        tasks.mkdir(parents=True, exist_ok=True)
        (tasks / "main.yml").write_text(
            yaml.safe_dump(
                [
                    {"name": "Build", **task, "register": "built", "ignore_errors": True},
                    {"ansible.builtin.copy": keep, "check_mode": False},
                ]
            )
        )
        play = {"name": "Play", "hosts": "all", "gather_facts": False, "roles": ["software"]}
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "ansible/collections"),
            "ANSIBLE_HOME": str(tmp_path / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "PATH": path,
        }
        if terminal:
            environment |= {
                "ANSIBLE_STDOUT_CALLBACK": "muster.slurm.muster_roles",
                "ANSIBLE_LOG_PATH": str(tmp_path / "log"),
            }
        words = ["--inventory", "one,", "--connection", way, "play.yml"]
        if way == "ssh":
            words.append("--become")
            environment |= {
                "ANSIBLE_BECOME_EXE": str(tmp_path / "sudo"),
                "ANSIBLE_PIPELINING": "1",
                "ANSIBLE_SSH_EXECUTABLE": str(tmp_path / "ssh"),
            }
        reading, writing = pty.openpty() if terminal else os.pipe()
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PLAYBOOK, str(minute_s), *words],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=writing,
            stderr=writing,
        ) as playbook:
            os.close(writing)
            printed = whole(reading)
        return Ran(playbook.returncode, printed, json.loads((tmp_path / "result").read_text()))

    return run


def whole(descriptor: int) -> str:
    """Return what is written until all writers have closed it; a terminal then says EIO."""
    text = b""
    try:
        while chunk := os.read(descriptor, 65536):
            text += chunk
    except OSError:
        pass
    os.close(descriptor)
    return text.decode()


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    return tmp_path / "apps"


def log_of(root: Path) -> str:
    return f"/var/log/muster-build/{str(root).strip('/').replace('/', '_')}.log"


def test_it_says_what_is_built_and_each_minute_how_far(
    run: Callable[..., Ran], apps: Path, tmp_path: Path
) -> None:
    torch = {"root": str(apps / "torch"), "build": "true", "module": "libs/torch/2"}
    tool = {"root": str(apps / "tool-quick"), "build": "true"}
    ran = run(torch, tool, minute_s=0.5, way="ssh")
    first, second, third, *_ = ran.said
    assert first == f"one builds libs/torch/2; follow it there: tail -f {log_of(apps / 'torch')}"
    assert second == "one builds libs/torch/2, 0 min: 12 of 90 MB"
    assert third == (
        "one builds libs/torch/2, 0 min: its log can't be read: tail: cannot open: No such file"
    )
    last = f"one builds {apps}/tool-quick; follow it there: tail -f {log_of(apps / 'tool-quick')}"
    assert last in ran.said
    assert (tmp_path / "looks").read_text().startswith(f"-c 4096 {log_of(apps / 'torch')}\n")
    assert ran.result["changed"]
    assert ran.result["paths"] == [torch["root"], tool["root"]]
    assert [part["after_header"] for part in ran.result["diff"]] == ran.result["paths"]
    again = run(torch, tool)
    assert (again.said, again.result["changed"]) == ([], False)


def test_on_a_terminal_it_has_lines_of_its_own_until_a_build_fails(
    run: Callable[..., Ran], apps: Path
) -> None:
    good = {"root": str(apps / "1-quick"), "build": "true"}
    bad = {"root": str(apps / "2-quick"), "build": "exit 1"}
    ran = run(good, bad, terminal=True)
    # The line of the role that runs is removed first (ECMA-48: erase in line).
    assert re.search(r"software +Play +\.\.\.\r\x1b\[Kone builds ", ran.printed)
    assert re.search(r"^one builds \S+/2-quick; follow it there: ", ran.printed, re.MULTILINE)
    assert re.search(r"^software +Play +1 host +1 changed", ran.printed, re.MULTILINE)
    assert (ran.result["failed"], ran.result["msg"]) == (True, "why")
    assert ran.result["paths"] == [good["root"]]


def test_in_check_mode_nothing_is_built_and_nothing_said(
    run: Callable[..., Ran], apps: Path
) -> None:
    tool = {"root": str(apps / "tool-quick"), "build": "true"}
    ran = run(tool, check_mode=True)
    assert (ran.said, ran.result["paths"]) == ([], [tool["root"]])
    assert not apps.exists()


@pytest.mark.parametrize(
    ("seconds", "words"), [(60.4, "1 min"), (3599, "1 h 0 min"), (7500, "2 h 5 min")]
)
def test_a_time_is_said_in_hours_and_minutes(seconds: float, words: str) -> None:
    from ansible_collections.muster.slurm.plugins.action.software_build import passed

    assert passed(seconds) == words


def test_what_a_log_ends_with_is_one_line_that_does_nothing_to_a_terminal() -> None:
    from ansible_collections.muster.slurm.plugins.action.software_build import one_line

    assert one_line("first\n\x1b[1;31mlast\x1b[0m \x07\x1b[2J\r\n\n") == "last"
    assert one_line("") == one_line("\r\n \n") == ""
    assert one_line("ü" * 500) == "ü" * 100
