"""`muster software CLUSTER`: what users load, and what the definition asks for."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster import definition
from muster.cli import software
from muster.cli.main import app
from muster.verify.ansible_query import AskError, Found

LAB = Path(__file__).parents[3] / "inventories/lab"
PYTHON, CUDA = "apps/python/3.11", "apps/cuda/11.7"
OLD = f"/apps/software/{PYTHON}/{'0' * 16}"
ROOT, BUILT = software.wanted_of(definition.load(LAB), LAB)[PYTHON]


def module(published: str | None, *there: str) -> dict[str, Any]:
    return {"published": published, "releases": list(there)}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch):
    def shown(replies: Found | AskError) -> tuple[int, dict[str, list[str]], str]:
        def ask(*words: object) -> Found:
            assert words == (LAB, "software.yml", ["lab-access"], "stdout")
            if isinstance(replies, AskError):
                raise replies
            return replies

        monkeypatch.setattr(software, "ask", ask)
        result = CliRunner().invoke(app, ["software", str(LAB)], env={"COLUMNS": "200"})
        rows = [line.rstrip().split(maxsplit=3) for line in result.stdout.splitlines()[1:]]
        return result.exit_code, {row[0]: row[1:] for row in rows}, result.stderr

    return shown


def answer(**modules: dict[str, Any]) -> Found:
    return Found({"lab-access": {"stdout": json.dumps(modules), "stderr": ""}}, [])


NEW = Path(ROOT).name
STATES = {
    "not built yet": (module(None), ["-", NEW, "builds and publishes it"]),
    "replaced in the definition": (
        module(OLD, OLD),
        [Path(OLD).name, NEW, "builds and publishes it"],
    ),
    "taken back": (module(OLD, OLD, ROOT), [Path(OLD).name, NEW, "publishes it"]),
    "as it should be": (module(ROOT, OLD, ROOT), [NEW, NEW, "nothing"]),
}


@pytest.mark.parametrize("state", STATES)
def test_each_module_has_a_line_that_says_what_changes(shown, state: str) -> None:
    report, line = STATES[state]
    code, rows, errors = shown(answer(**{PYTHON: report}))
    assert (code, errors, BUILT) == (0, "", True)
    assert rows[PYTHON] == line


def test_what_the_play_does_not_build_says_who_does(shown) -> None:
    assert shown(answer())[1][CUDA][2] == "nothing: build it by hand"


def test_a_module_that_left_the_definition_loses_its_modulefile(shown) -> None:
    left, collected = "apps/left/1", "apps/forgotten/1"
    rows = shown(answer(**{left: module(OLD, OLD), collected: module(None, OLD)}))[1]
    assert rows[left] == [Path(OLD).name, "-", "removes the modulefile"]
    assert collected not in rows


def test_the_controller_of_a_cluster_in_the_cloud_is_asked_by_ssh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, ...]] = []

    class Controller:
        def fetch(self, *command: str) -> tuple[bytes, str]:
            asked.append(command)
            return json.dumps({"apps/left/1": module(OLD, OLD)}).encode(), ""

    def controller_of(*words: object) -> Controller:
        asked.append(words)
        return Controller()

    monkeypatch.setattr(software, "controller_of", controller_of)
    cloud = str(LAB.with_name("cloud"))
    result = CliRunner().invoke(app, ["software", cloud, "--user", "ada"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "apps/left/1" in result.stdout
    assert asked == [(cloud, "ada", None), (software.PROGRAM, "list", "--json")]


SILENT = {
    "away": (Found({}, ["lab-access: gone"]), "lab-access: gone\n"),
    "nobody was asked": (AskError("no Ansible"), "error: no Ansible\n"),
    "not installed": (
        Found({"lab-access": {"stdout": "", "stderr": ""}}, []),
        "lab-access: has no muster-software; run site.yml, which installs it\n",
    ),
}


@pytest.mark.parametrize("case", SILENT)
def test_a_controller_without_a_report_is_named(shown, case: str) -> None:
    replies, said = SILENT[case]
    assert shown(replies) == (4, {}, said)
