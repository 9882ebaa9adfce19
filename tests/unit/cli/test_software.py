"""`muster software`: what each verb asks the controller, or has Ansible do."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from odd_answers import CLIPBOARD, variants
from typer.testing import CliRunner

from muster import definition
from muster.cli import on_controller, software
from muster.cli.main import app
from muster.gcp import remote
from muster.verify.ansible_query import AskError, Found, LateError, json_of

LAB = Path(__file__).parents[3] / "inventories/lab"
PYTHON, CUDA = "apps/python/3.11", "apps/cuda/11.7"
OLD = f"/apps/software/{PYTHON}/{'0' * 16}"
ROOT, BUILT = software.wanted_of(definition.load(LAB), LAB)[PYTHON]


def module(published: str | None, *there: str) -> dict[str, Any]:
    return {"published": published, "releases": list(there)}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch):
    def shown(replies: Found | AskError) -> tuple[int, dict[str, list[str]], str]:
        def ask(*words: object, answer_seconds: int) -> Found:
            asked = {"software_words": ["list", "--json"], "software_seconds": 120}
            assert words == (LAB, "software.yml", ["lab-access"], "stdout", asked)
            assert answer_seconds == 120
            if isinstance(replies, AskError):
                raise replies
            return replies

        monkeypatch.setattr(software, "ask", ask)
        result = CliRunner().invoke(app, ["software", "diff", str(LAB)], env={"COLUMNS": "200"})
        rows = [line.rstrip().split(maxsplit=3) for line in result.stdout.splitlines()[1:]]
        said = result.stderr.removeprefix("asking lab-access\n")
        return result.exit_code, {row[0]: row[1:] for row in rows}, said

    return shown


def answer(**modules: dict[str, Any]) -> Found:
    answer = {"stdout": json.dumps(modules), "stderr": "", "rc": 0}
    return Found({"lab-access": answer}, [])


NEW = Path(ROOT).name
STATES = {
    "not built yet": (module(None), ["-", NEW, "builds and publishes it"]),
    "replaced in the definition": (
        module(OLD, OLD),
        [Path(OLD).name, NEW, "builds and publishes it"],
    ),
    "taken back": (module(OLD, OLD, ROOT), [Path(OLD).name, NEW, "publishes it"]),
    "as it should be": (module(ROOT, OLD, ROOT), [NEW, NEW, "no other release"]),
}


@pytest.mark.parametrize("state", STATES)
def test_each_module_has_a_line_that_says_what_changes(shown, state: str) -> None:
    report, line = STATES[state]
    code, rows, errors = shown(answer(**{PYTHON: report}))
    assert (code, errors, BUILT) == (0, "", True)
    assert rows[PYTHON] == line


def test_what_the_play_does_not_build_says_who_does(shown) -> None:
    assert shown(answer())[1][CUDA][2] == "nothing: build it by hand"
    # Its modulefile names another folder then, whether that is built or not.
    old = f"/apps/software/{CUDA}/{'0' * 16}"
    said = shown(answer(**{CUDA: module(old, old)}))[1][CUDA][2]
    assert said == "publishes it, not built: build it by hand before"


def test_a_module_that_left_the_definition_loses_its_modulefile(shown) -> None:
    left, collected = "apps/left/1", "apps/forgotten/1"
    rows = shown(answer(**{left: module(OLD, OLD), collected: module(None, OLD)}))[1]
    assert rows[left] == [Path(OLD).name, "-", "removes the modulefile"]
    assert collected not in rows


def test_a_module_that_is_no_longer_built_gets_another_modulefile() -> None:
    data = definition.load(LAB)
    modules = data.cluster.software.modules
    name, _, version = PYTHON.rpartition("/")
    own = modules[name][version].model_copy(update={"build": None, "root": "/opt/python"})
    software_of = data.cluster.software.model_copy(
        update={"modules": {**modules, name: {**modules[name], version: own}}}
    )
    changed = data.cluster.model_copy(update={"software": software_of})
    wanted = software.wanted_of(replace(data, cluster=changed), LAB)
    grid = software.table({PYTHON: module(OLD, OLD)}, wanted)
    rows = zip(*(column.cells for column in grid.columns), strict=True)
    assert (PYTHON, Path(OLD).name, "-", "replaces the modulefile") in rows


class CloudController:
    """The controller of a cluster in the cloud; it notes what it is asked."""

    def __init__(self, output: str, errors: str = "") -> None:
        self.output, self.errors = output, errors
        self.asked: list[tuple[object, ...]] = []

    def find(self, *words: object) -> "CloudController":
        self.asked.append(words)
        return self

    def fetch(self, *command: str, seconds: int) -> tuple[bytes, str]:
        self.asked.append((*command, seconds))
        return self.output.encode(), self.errors


CLOUD = str(LAB.with_name("cloud"))


def test_the_controller_of_a_cluster_in_the_cloud_is_asked_by_ssh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = CloudController(json.dumps({"apps/left/1": module(OLD, OLD)}))
    monkeypatch.setattr(software, "controller_in", controller.find)
    result = CliRunner().invoke(app, ["software", "diff", CLOUD, "--user", "ada"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "apps/left/1" in result.stdout
    assert controller.asked == [(Path(CLOUD), "ada"), (software.PROGRAM, "list", "--json", 120)]


PASSED_ON = {
    "list": (["list"], [], ["list"], 120),
    "rollback": (["rollback"], [PYTHON], ["rollback", "--", PYTHON], 600),
    "to a release": (
        ["rollback"],
        [PYTHON, "0" * 16],
        ["rollback", "--", PYTHON, "0" * 16],
        600,
    ),
    "gc": (["gc"], [], ["gc", "--days=7"], 3600),
    "gc for chains of jobs": (["gc"], ["--days", "90"], ["gc", "--days=90"], 3600),
}


def test_the_program_and_the_command_know_the_same_shortest_time() -> None:
    """The program is installed on hosts without this package."""
    library = LAB.parents[1] / "roles/software/files/usr/local/lib/muster/muster_software"
    assert "SHELL_DAYS = 7\n" in (library / "collect.py").read_text(encoding="utf-8")
    result = CliRunner().invoke(app, ["software", "gc", str(LAB), "--days", "6"])
    assert (result.exit_code, "greater than or equal to 7" in result.stderr) == (2, True)


@pytest.mark.parametrize("case", PASSED_ON)
def test_the_program_of_the_controller_is_run_and_says_all(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    verb, more, words, seconds = PASSED_ON[case]
    asked: list[object] = []

    def ask(*given: object, answer_seconds: int) -> Found:
        asked.extend([*given, answer_seconds])
        answer = {"stdout": "one\ntwo", "stderr": "no more; run again", "rc": 1}
        return Found({"lab-access": answer}, [])

    monkeypatch.setattr(software, "ask", ask)
    result = CliRunner().invoke(app, ["software", *verb, str(LAB), *more])
    assert (result.exit_code, result.stdout) == (1, "one\ntwo\n")
    assert result.stderr == "asking lab-access\nno more; run again\n"
    variables = {"software_words": words, "software_seconds": seconds}
    assert asked == [LAB, "software.yml", ["lab-access"], "stdout", variables, seconds]


@pytest.mark.parametrize("case", PASSED_ON)
def test_in_the_cloud_it_is_run_by_ssh(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    verb, more, words, seconds = PASSED_ON[case]
    controller = CloudController("done\n", "and said")
    monkeypatch.setattr(software, "controller_in", controller.find)
    result = CliRunner().invoke(app, ["software", *verb, CLOUD, *more])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "done\n", "and said\n")
    assert controller.asked == [(Path(CLOUD), None), (software.PROGRAM, *words, seconds)]


def test_the_program_may_take_as_long_as_it_is_given_in_the_cloud_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def run(*_: object, **options: object) -> remote.Ended:
        given.update(options)
        return remote.Ended(0, "", b"done")

    monkeypatch.setattr(remote, "run", run)
    controller = on_controller.Controller(Mock(controller="c-controller"), None)
    assert controller.fetch("muster-software", "gc", seconds=3600) == (b"done", "")
    assert given["seconds"] == 3600


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (Found({}, ["lab-access: gone"]), 4, "lab-access: gone\n"),
        # As Ansible answers for a program that is not there.
        (
            Found({"lab-access": {"stdout": "", "stderr": "", "rc": 2, "msg": "No such file"}}, []),
            4,
            "lab-access: has no muster-software; run site.yml, which installs it\n",
        ),
    ],
)
def test_a_controller_that_can_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, found: Found, code: int, said: str
) -> None:
    monkeypatch.setattr(software, "ask", lambda *_, **__: found)
    result = CliRunner().invoke(app, ["software", "gc", str(LAB)])
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"asking lab-access\n{said}"


LATE = "; the rollback may still run: `muster software list` shows what users load"


@pytest.mark.parametrize(
    ("verb", "found", "said"),
    [
        ("rollback", Found({}, ["lab-access: slow"], is_late=True), f"lab-access: slow{LATE}"),
        ("rollback", LateError("slow"), f"error: slow{LATE}"),
        ("rollback", Found({}, ["lab-access: gone"]), "lab-access: gone"),
        ("rollback", AskError("no Ansible"), "error: no Ansible"),
        ("list", Found({}, ["lab-access: slow"], is_late=True), "lab-access: slow"),
    ],
)
def test_a_rollback_that_was_given_up_may_still_run(
    monkeypatch: pytest.MonkeyPatch, verb: str, found: Found | AskError, said: str
) -> None:
    monkeypatch.setattr(software, "ask", Mock(side_effect=[found]))
    more = [PYTHON] if verb == "rollback" else []
    result = CliRunner().invoke(app, ["software", verb, str(LAB), *more])
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"asking lab-access\n{said}\n"


def test_a_silent_file_server_is_named_by_the_program_itself() -> None:
    """After the minute that it waits; it has no module of this package."""
    file = LAB.parents[1] / "ansible/plugins/module_utils/mount_table.py"
    assert "\nSECONDS = 60\n" in file.read_text(encoding="utf-8")
    assert min(software.LIST_S, software.ROLLBACK_S, software.GC_S) > 60


@pytest.mark.parametrize("words", [["list"], ["diff"], ["gc"], ["rollback", PYTHON]])
def test_a_login_is_for_the_cloud(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(software, "ask", lambda *_, **__: pytest.fail("asked"))
    verb, *more = words
    result = CliRunner().invoke(app, ["software", verb, str(LAB), *more, "--user", "ada"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("as hosts.yml says (ansible_user); leave out --user\n")


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The programs as which this one went on."""
    (tmp_path / "ansible-playbook").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    calls: list[Any] = []

    def execve(program: str, words: list[str], environment: dict[str, str]) -> None:
        assert program == words[0]
        assert Path(environment["ANSIBLE_CONFIG"]).is_file()
        calls.append([Path(program).name, *words[1:]])

    monkeypatch.setattr(os, "execve", execve)
    return calls


SITE = str(LAB.parents[1] / "ansible/site.yml")


@pytest.mark.parametrize(
    ("verb", "options", "tags", "passed"),
    [
        ("build", [], "software_install,software_build", []),
        ("publish", [], "software", []),
        ("publish", ["--check"], "software", ["--check", "--diff"]),
    ],
)
def test_the_part_of_site_yml_is_run(
    became: list[Any], verb: str, options: list[str], tags: str, passed: list[str]
) -> None:
    result = CliRunner().invoke(app, ["software", verb, *options, str(LAB)])
    assert (result.stderr, result.exception) == ("", None)
    words = ["--inventory", str(LAB), "--limit", "controller", "--tags", tags, *passed, SITE]
    assert became == [["ansible-playbook", *words]]


def test_a_build_publishes_nothing() -> None:
    """Nothing of the role but the modulefiles is left out by its tags."""
    folder = LAB.parents[1] / "roles/software/tasks"
    tasks = yaml.safe_load((folder / "configure.yml").read_text(encoding="utf-8"))
    published = [task for task in tasks if "software_build" not in task.get("tags", [])]
    assert [[*task][1] for task in published] == ["muster.slurm.module_tree"]


@pytest.mark.parametrize("verb", ["build", "publish"])
def test_in_the_cloud_the_controller_does_it_by_itself(became: list[Any], verb: str) -> None:
    result = CliRunner().invoke(app, ["software", verb, CLOUD])
    assert (result.exit_code, became) == (2, [])
    assert result.stderr == (
        "error: in the cloud the controller builds and publishes by itself, so there is no "
        f"{verb} from here; `pulumi up` brings it the definition\n"
    )


def test_without_ansible_it_says_what_installs_it(became: list[Any], tmp_path: Path) -> None:
    (tmp_path / "ansible-playbook").unlink()
    result = CliRunner().invoke(app, ["software", "publish", str(LAB)])
    assert (result.exit_code, became) == (1, [])
    assert "ansible-playbook; install Muster with its requirements.txt" in result.stderr


NO_SETTINGS = "there is no /etc/muster/software.json; run site.yml, whose role software writes it"
SILENT = {
    "away": (Found({}, ["lab-access: gone"]), 4, "lab-access: gone\n"),
    "nobody was asked": (AskError("no Ansible"), 4, "error: no Ansible\n"),
    "not installed": (
        Found({"lab-access": {"stdout": "", "stderr": "", "rc": 2}}, []),
        4,
        "lab-access: has no muster-software; run site.yml, which installs it\n",
    ),
    # Of the program, which says itself what to do.
    "without software": (
        Found({"lab-access": {"stdout": "", "stderr": NO_SETTINGS, "rc": 1}}, []),
        1,
        f"{NO_SETTINGS}\n",
    ),
}


@pytest.mark.parametrize("case", SILENT)
def test_a_controller_without_a_report_is_named(shown, case: str) -> None:
    replies, code, said = SILENT[case]
    assert shown(replies) == (code, {}, said)


FORGED = "find out who changed programs there, or install the host again"
RESULT = {"stdout": json.dumps({PYTHON: module(OLD, OLD)}), "stderr": "", "rc": 0}
ODD_RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an output that is a mapping": ({**RESULT, "stdout": {}}, "stdout"),
    "errors that are a list": ({**RESULT, "stderr": []}, "stderr"),
    "an exit code that is a text": ({**RESULT, "rc": "0"}, "rc"),
    "an exit code of many digits": ({**RESULT, "rc": 10**400}, "rc"),
    "no exit code": ({"stdout": "", "stderr": ""}, "rc"),
}


@pytest.mark.parametrize("case", ODD_RESULTS)
def test_an_answer_that_can_not_be_right_is_one_sentence(shown, case: str) -> None:
    result, field = ODD_RESULTS[case]
    said = f"its report can't be right: {field} is missing or of another type; {FORGED}"
    assert shown(Found({"lab-access": result}, [])) == (4, {}, f"lab-access: {said}\n")


ODD_OUTPUTS = {
    "no JSON": "hello",
    "thousands of brackets": "[" * 100_000,
    "a list": json.dumps([module(OLD, OLD)]),
    "a module that is a text": json.dumps({PYTHON: OLD}),
    "a release that is a number": json.dumps({PYTHON: module(OLD) | {"releases": [7]}}),
    "a module without releases": json.dumps({PYTHON: {"published": OLD}}),
    "published is a list": json.dumps({PYTHON: {"published": [OLD], "releases": []}}),
}


@pytest.mark.parametrize("case", ODD_OUTPUTS)
def test_releases_that_can_not_be_right_are_one_sentence(shown, case: str) -> None:
    found = Found({"lab-access": {**RESULT, "stdout": ODD_OUTPUTS[case]}}, [])
    said = f"the controller's list of releases can't be right; {FORGED}\n"
    assert shown(found) == (4, {}, said)


def test_whatever_the_controller_lists_is_a_table_or_a_sentence() -> None:
    for odd in variants({PYTHON: module(OLD, OLD)}):
        report = json_of(json.dumps(odd))
        if software.RELEASES(report):
            columns = software.table(report, {PYTHON: (ROOT, True)}).columns
            assert all(str(text).isprintable() for column in columns for text in column.cells)


@pytest.mark.parametrize("words", [["list"], ["diff"]])
def test_the_controller_in_the_cloud_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    listed = {f"apps/left/1{CLIPBOARD}": module(OLD, OLD)}
    output = json.dumps(listed) if words == ["diff"] else f"one{CLIPBOARD}\ntwo\n"
    controller = CloudController(output)
    monkeypatch.setattr(software, "controller_in", controller.find)
    result = CliRunner().invoke(app, ["software", *words, CLOUD])
    assert result.exit_code == 0
    assert all(line.isprintable() for line in result.stdout.splitlines())
    assert "]52;c;" in result.stdout
