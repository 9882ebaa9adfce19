"""A run asks each host once for its packages, and again where something was installed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible.constants
import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.muster.slurm.plugins.action.managed_packages import ActionModule
from ansible_collections.muster.slurm.plugins.plugin_utils.package_readings import keep, reading

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
"""
FACTS = "    - {muster.slurm.host_facts: {}}\n"
PACKAGES = "    - {muster.slurm.managed_packages: {names: [munge, slurmd=24.*]}}\n"
SHOW = "    - {ansible.builtin.debug: {var: ansible_facts}}\n"
DPKG = 'echo "$#" >>"$ASKED"\necho munge installed 0.5.15-2\necho slurmd installed 24.11-1'


def play(tmp_path: Path, path: str, tasks: str) -> tuple[list[str], str]:
    """Run these tasks; return how many words each call of dpkg-query had, and the output."""
    (tmp_path / "play.yml").write_text(PLAY + tasks)
    (tmp_path / "asked").write_text("")
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", "localhost,", str(tmp_path / "play.yml")),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": path,
            "ASKED": str(tmp_path / "asked"),
            # As a person may have it: what an earlier run has read must not count.
            "ANSIBLE_CACHE_PLUGIN": "jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (tmp_path / "asked").read_text().split(), done.stdout


def test_what_the_facts_have_shown_is_not_asked_again_in_this_run(
    tmp_path: Path, stand_ins: Callable[[Mapping[str, str]], str]
) -> None:
    path = stand_ins({"dpkg-query": DPKG})
    asked, output = play(tmp_path, path, FACTS + PACKAGES + PACKAGES + SHOW)
    assert asked == ["2"]
    assert "distribution_release" in output
    assert "slurmd" not in output
    # Another run has no reading.
    asked, _ = play(tmp_path, path, PACKAGES)
    assert asked == ["4"]


class Host:
    """A host whose modules return what a test says, in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: Mapping[str, Any]) -> None:
        self.asked: list[str] = []
        self.results = list(results)

        def execute(_: object, module_name: str = "managed_packages", **__: Any) -> Any:
            self.asked.append(module_name.rpartition(".")[2])
            return self.results.pop(0)

        monkeypatch.setattr(ActionBase, "run", lambda *_: {})
        monkeypatch.setattr(ActionBase, "_execute_module", execute)

    def run(self, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        task = SimpleNamespace(args=arguments, delegate_to=None, check_mode=check)
        action = ActionModule.__new__(ActionModule)
        action._task = task
        return action.run(task_vars={"inventory_hostname": "node"})


MISSING = {"changed": False, "missing": ["munge"], "replaced": []}


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ansible.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))


def test_an_installation_is_followed_by_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("node", {"lmod": "8.6"})
    facts = {"packages": {"lmod": "8.6", "munge": "0.5"}}
    host = Host(monkeypatch, MISSING, {"changed": True}, facts)
    assert host.run(names=["munge"])["changed"]
    assert host.asked == ["managed_packages", "apt", "host_facts"]
    assert reading("node") == facts["packages"]


@pytest.mark.parametrize(
    "results",
    [[{"changed": True, "failed": True}], [{"changed": True}, {"unreachable": True}]],
    ids=["apt", "facts"],
)
def test_what_is_not_known_after_an_installation_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, results: list[dict[str, bool]]
) -> None:
    keep("node", {"lmod": "8.6"})
    host = Host(monkeypatch, MISSING, *results, {"changed": False, "missing": []})
    host.run(names=["munge"])
    assert reading("node") is None
    host.run(names=["lmod"])
    assert host.asked[-1] == "managed_packages"


def test_a_run_without_a_reading_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, MISSING, {"changed": True})
    host.run(names=["munge"])
    assert host.asked == ["managed_packages", "apt"]


def test_a_dry_run_reads_what_would_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("node", {"lmod": "8.6"})
    missing = {"changed": False, "missing": ["munge", "slurmd=24.11.*"], "replaced": []}
    host = Host(monkeypatch, missing, {"changed": True})
    host.run(names=["munge", "slurmd=24.11.*"], check=True)
    host.run(names=["slurmd=24.11.*"], check=True)
    assert host.asked == ["managed_packages", "apt"]


def test_another_version_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("node", {"slurmd": "24.11-1"})
    host = Host(monkeypatch, {"changed": False, "missing": []})
    host.run(names=["slurmd=24.11*"])
    assert host.asked == []
    host.run(names=["slurmd=25.*"])
    assert host.asked == ["managed_packages"]


def test_what_is_to_be_held_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("node", {"slurmctld": "24.11-1"})
    held = {"changed": True, "held": ["slurmctld"], "missing": []}
    host = Host(monkeypatch, held)
    assert json.dumps(host.run(names=["slurmctld=24.11-1"], held=True)) == json.dumps(held)


def test_a_reading_is_of_one_host() -> None:
    keep("node", {"munge": "0.5.15-2"})
    assert reading("other") is None
