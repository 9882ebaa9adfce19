"""`muster cache CLUSTER`: what the nodes say, as one table; Ansible's part is played."""

import json
from pathlib import Path
from typing import Any

import pytest
from odd_answers import CLIPBOARD, variants
from rich.console import Console
from typer.testing import CliRunner

from muster.cli import cache
from muster.cli.main import app
from muster.verify.ansible_query import AskError, Found, reports_of

LAB = Path(__file__).parents[3] / "inventories/lab"
MIB = 2**20


def folder(path: str, read_mib: int, asked_mib: int, *, asked: bool = True) -> dict[str, Any]:
    return {
        "path": path,
        "asked": asked,
        "read_bytes": read_mib * MIB,
        "from_server_bytes": asked_mib * MIB,
        "read_calls": asked_mib,
    }


REPORT: dict[str, Any] = {
    "active": True,
    "disk": {"bytes": 1000 * MIB, "free_bytes": 600 * MIB},
    "disk_reads": 1,
    "disk_writes": 1,
    "folders": [folder("/apps", 200, 50), folder("/home", 0, 0, asked=False)],
    "problem": "",
}
STOPPED = REPORT | {"active": False, "problem": "cachefilesd does not run: systemctl status"}


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """The lab, with modules from NFS and a cache."""
    folder = tmp_path / "lab"
    (folder / "group_vars/all").mkdir(parents=True)
    text = (LAB / "group_vars/all/cluster.yml").read_text()
    text = text.replace(
        "apps: {kind: existing, path: /apps}",
        "apps: {kind: nfs, path: /apps, server: filer, cached: true}\n"
        "    cache: {any_kernel: true}",
    )
    (folder / "group_vars/all/cluster.yml").write_text(text)
    (folder / "hosts.yml").write_text((LAB / "hosts.yml").read_text())
    return folder


def shown(reports: dict[str, Any]) -> list[list[str]]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(cache.table(reports))
    return [line.split("  ") for line in capture.get().splitlines()]


def test_each_folder_of_each_node_has_a_line() -> None:
    lines = [[word.strip() for word in line if word.strip()] for line in shown({"n1": REPORT})]
    assert lines[1] == ["n1", "400 of 1000 MiB", "/apps", "yes", "200 MiB", "50 MiB", "75 %"]
    assert lines[2] == ["n1", "400 of 1000 MiB", "/home", "no", "0 MiB", "0 MiB", "-"]


def test_a_folder_is_not_cached_where_the_daemon_does_not_run() -> None:
    lines = [[word.strip() for word in line if word.strip()] for line in shown({"n1": STOPPED})]
    assert lines[1][3] == "no"


def result_of(report: object = None, stderr: str = "") -> dict[str, Any]:
    """Return the result of the task on a node."""
    return {"stdout": json.dumps(report) if report else "", "stderr": stderr}


def folders_with(**changed: Any) -> dict[str, Any]:
    """Return a report with a folder that has these changes."""
    return {**REPORT, "folders": [folder("/apps", 200, 50) | changed]}


CRASH = 'Traceback (most recent call last):\n  File "muster-cache"\nOSError: no /proc\n'
SILENT = {
    "not installed": (result_of(), "has no muster-cache; run site.yml, which installs it"),
    "crashed": (
        result_of(stderr=CRASH),
        "muster-cache failed: OSError: no /proc; "
        "run it there: sudo /usr/local/sbin/muster-cache --json",
    ),
}


@pytest.mark.parametrize("case", SILENT)
def test_a_node_without_a_report_is_named(case: str) -> None:
    result, said = SILENT[case]
    found = Found({"n1": result_of(REPORT), "n2": result}, ["n3: gone"])
    reports = reports_of(found, cache.PROGRAM, cache.FIELDS)
    assert reports == Found({"n1": REPORT}, ["n3: gone", f"n2: {said}"])


ANSWERS = {name: result_of(REPORT) for name in ("lab-cpu-01", "lab-cpu-02", "lab-gpu-01")}
OUTCOMES = {
    "all is well": (Found(ANSWERS, []), 0, ""),
    "a daemon stopped": (
        Found(ANSWERS | {"lab-cpu-02": result_of(STOPPED)}, []),
        2,
        "lab-cpu-02: cachefilesd does not run: systemctl status\n",
    ),
    "what a node says is for a terminal": (
        Found(ANSWERS | {"lab-cpu-02": result_of(STOPPED | {"problem": f"a{CLIPBOARD}"})}, []),
        2,
        "lab-cpu-02: a ]52;c;cm0gLXJmIH4K \n",
    ),
    "a node is away": (Found(ANSWERS, ["lab-gpu-02: gone"]), 4, "lab-gpu-02: gone\n"),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_the_exit_code_says_how_it_stands(
    case: str, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies, code, said = OUTCOMES[case]
    asked = []
    monkeypatch.setattr(cache, "ask", lambda *words: asked.append(words) or replies)
    result = CliRunner().invoke(app, ["cache", str(cached)])
    assert (result.exit_code, result.stderr) == (code, said)
    nodes = ["lab-cpu-01", "lab-cpu-02", "lab-gpu-01", "lab-gpu-02"]
    assert asked == [(cached, "cache.yml", nodes, "stdout")]
    assert "lab-cpu-01" in result.stdout


def test_where_nothing_is_cached_nobody_is_asked() -> None:
    result = CliRunner().invoke(app, ["cache", str(LAB)])
    assert (result.exit_code, "no folder is cached" in result.stdout) == (0, True)


def test_nodes_in_the_cloud_are_asked_by_a_job(tmp_path: Path) -> None:
    text = (LAB.parent / "cloud/group_vars/all/cluster.yml").read_text()
    for old, new in (
        ("apps: {kind: nfs", "cache: {any_kernel: true}\n    apps: {kind: nfs, cached: true"),
        ("max_nodes: 10", "max_nodes: 10\n      local_ssds: 1"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/cluster.yml").write_text(text)
    result = CliRunner().invoke(app, ["cache", str(tmp_path)])
    assert result.exit_code == 4
    assert result.stderr.endswith("srun --nodelist=slurm10-SET-N /usr/local/sbin/muster-cache\n")


def test_ansible_that_does_not_start_is_said(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Found:
        raise AskError("Ansible did not start: x; fix that and run again")

    monkeypatch.setattr(cache, "ask", refuse)
    result = CliRunner().invoke(app, ["cache", str(cached)])
    assert (result.exit_code, result.stderr.startswith("error: Ansible did not start")) == (4, True)


ODD: dict[str, tuple[Any, str]] = {
    "no mapping": ([REPORT], "active"),
    "active as a text": ({**REPORT, "active": "no"}, "active"),
    "a disk that is a list": ({**REPORT, "disk": [1]}, "disk"),
    "a disk of no bytes": ({**REPORT, "disk": {"free_bytes": 1}}, "disk"),
    "a disk below zero": ({**REPORT, "disk": {"bytes": -1, "free_bytes": 1}}, "disk"),
    "a disk of thousands of digits": (
        {**REPORT, "disk": {"bytes": 10**4000, "free_bytes": 1}},
        "disk",
    ),
    "no folders": ({**REPORT, "folders": None}, "folders"),
    "a folder that is a text": ({**REPORT, "folders": ["/apps"]}, "folders"),
    "a path that is a list": (folders_with(path=["/apps"]), "folders"),
    "a part of a byte": (folders_with(read_bytes=0.5), "folders"),
    "bytes that are no number": (folders_with(from_server_bytes=float("nan")), "folders"),
    "a problem that is a mapping": ({**REPORT, "problem": {"x": 1}}, "problem"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_report_that_can_not_be_right_leaves_the_others_theirs(
    case: str, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root of a node says what it likes."""
    report, field = ODD[case]
    answers = {"lab-cpu-01": result_of(report), "lab-cpu-02": result_of(STOPPED)}
    monkeypatch.setattr(cache, "ask", lambda *_: Found(answers, []))
    result = CliRunner().invoke(app, ["cache", str(cached)])
    assert result.exit_code == 4
    assert result.stderr == (
        f"lab-cpu-01: its report can't be right: {field} is missing or of another type; find out "
        "who changed programs there, or install the host again\n"
        "lab-cpu-02: cachefilesd does not run: systemctl status\n"
    )
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == 2 * ["lab-cpu-02"]


def test_whatever_a_node_reports_all_are_shown() -> None:
    for odd in variants(REPORT):
        answers = {
            "n1": {"stdout": json.dumps(odd), "stderr": ""},
            "n2": result_of(REPORT),
        }
        found = reports_of(Found(answers, []), cache.PROGRAM, cache.FIELDS)
        assert len(found.answers) + len(found.unreached) == 2
        assert "n2" in found.answers
        cells = [cell for column in cache.table(found.answers).columns for cell in column.cells]
        assert all(str(text).isprintable() for text in [*found.unreached, *cells])
