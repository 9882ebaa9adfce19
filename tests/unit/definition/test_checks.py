"""Each check by example: cases/<check>.yml has definitions that it refuses and some that pass.

A case changes the texts of base/ (`base: base-cloud`: of that folder): `cluster` and `hosts` map a
text of cluster.yml or hosts.yml, which must be there once, to another; `files` adds files.
A bad one says at which line the error is (`at`: a text that only this line of `file` has) and a
part of what is said.
"""

import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yamlkit

from muster.definition import Problem, sources
from muster.definition.checks import CHECKS
from muster.definition.loading import examine
from muster.definition.sources import RoleVariables

HERE = Path(__file__).parent
CASES = HERE / "cases"
FILES = {"cluster": sources.CLUSTER_FILE, "hosts": sources.HOSTS_FILE}
# The checks must not depend on which roles and variables there are by now.
FROM_SECRETS = frozenset({"munge_key_b64", "mariadb_password"})
ROLES: RoleVariables = {
    "base": {
        "base_hosts": {"type": "list", "elements": "dict"},
        "base_hostname": {"type": "str"},
        "base_minimum_free_mib": {"type": "int"},
        "base_ntp_servers": {"type": "list", "elements": "str"},
        "base_ports": {"type": "list", "elements": "int"},
        "base_sysctl": {"type": "dict"},
        "base_upgrades": {"type": "bool"},
    },
    "munge": {
        "munge_key_b64": {"type": "str", "no_log": True},
        "munge_threads": {"type": "int"},
        "munge_token": {"type": "str", "no_log": True},
    },
    "slurmctld": {"slurmctld_version": {"type": "str"}, "slurmctld_port": {"type": "int"}},
}


@dataclass(frozen=True)
class Case:
    check: str
    number: int
    base: str = "base"
    cluster: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    mode: str = "0600"
    tracked: bool = False
    file: str = "cluster"
    at: str | None = None
    path: str | None = None
    says: str = ""
    without: list[str] = field(default_factory=list)
    """The checks that would report what follows from the mistake, if this one did not."""

    def __str__(self) -> str:
        return f"{self.check}-{self.number}"


@cache
def files() -> dict[str, Any]:
    return {file.stem: yamlkit.load(file.read_text()) for file in sorted(CASES.glob("*.yml"))}


@cache
def cases(kind: str) -> list[Case]:
    return [
        Case(check, number, **example)
        for check, examples in files().items()
        for number, example in enumerate(examples[kind])
    ]


def write(case: Case, folder: Path) -> None:
    shutil.copytree(HERE / case.base, folder, dirs_exist_ok=True)
    for name, changes in (("cluster", case.cluster), ("hosts", case.hosts)):
        if not changes:
            continue
        file = folder / FILES[name]
        text = file.read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, f"{case}: {old!r} is {text.count(old)} times in {name}"
            text = text.replace(old, new)
        file.write_text(text)
    for name in case.remove:
        (folder / name).unlink()
    for name, text in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(int(case.mode, 8))
    if case.tracked:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "-f", *case.files], cwd=folder, check=True)


def problems(folder: Path) -> list[Problem]:
    return examine(sources.read(folder, FROM_SECRETS, ROLES))[1]


def line_with(text: str, file: Path) -> int:
    lines = [number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line]
    assert len(lines) == 1, f"{text!r} is on the lines {lines} of {file.name}"
    return lines[0]


@pytest.mark.parametrize("case", cases("bad"), ids=str)
def test_bad_example_gives_exactly_one_error_at_its_line(case: Case, tmp_path: Path) -> None:
    write(case, tmp_path)
    reported = problems(tmp_path)
    assert [problem.check for problem in reported] == [case.check], "\n".join(map(str, reported))
    problem = reported[0]
    file = tmp_path / FILES.get(case.file, case.file)
    assert problem.file == str(file)
    assert problem.line == (line_with(case.at, file) if case.at else 1)
    assert case.says in f"{problem.message}; {problem.remedy}"
    assert case.path is None or problem.path == case.path
    assert problem.remedy
    for noise in ("[type=", "input_value", "pydantic", "Input should", "<class", "Traceback"):
        assert noise not in str(problem)


@pytest.mark.parametrize("case", cases("good"), ids=str)
def test_good_example_is_accepted(case: Case, tmp_path: Path) -> None:
    write(case, tmp_path)
    assert list(map(str, problems(tmp_path))) == []


@pytest.mark.parametrize("case", cases("bad"), ids=str)
def test_bad_example_needs_its_check(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(case, tmp_path)
    taken_out = CHECKS[case.check]
    monkeypatch.delitem(CHECKS, case.check)
    left = [problem.check for problem in problems(tmp_path)]
    # What YAML or the schema refuses stays an error, said in general words.
    assert left == (case.without or (["other"] if taken_out.claims else []))


def without_partner(checks: set[str]) -> set[str]:
    """Checks without a bad or a good example, and examples without a check."""
    return {name for kind in ("bad", "good") for name in examples(kind) ^ checks}


def examples(kind: str) -> set[str]:
    return {case.check for case in cases(kind)}


def test_every_check_has_examples_and_every_example_a_check() -> None:
    assert without_partner(set(CHECKS)) == set()


def test_a_row_or_function_that_is_taken_out_is_noticed() -> None:
    known = examples("bad")
    assert {name: without_partner(known - {name}) for name in known} == {n: {n} for n in known}


def test_there_are_at_least_60_checks() -> None:
    assert len(CHECKS) >= 60


def test_every_check_says_what_it_refuses() -> None:
    assert [check.name for check in CHECKS.values() if len(check.summary) < 10] == []


@pytest.mark.parametrize("base", ["base", "base-cloud"])
def test_base_is_accepted(base: str) -> None:
    assert list(map(str, problems(HERE / base))) == []


def test_case_files_have_only_examples() -> None:
    known: set[str] = {"bad", "good"}
    for file in CASES.glob("*.yml"):
        content: Any = yamlkit.load(file.read_text())
        assert set(content) == known, file.name
