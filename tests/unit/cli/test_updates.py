"""`muster updates CLUSTER`: what the hosts say, as one table; Ansible's part is played."""

import json
from pathlib import Path
from typing import Any

import pytest
from odd_answers import variants
from typer.testing import CliRunner

from muster.cli import updates
from muster.cli.main import app
from muster.verify.ansible_query import AskError, Found, reports_of

LAB = Path(__file__).parents[3] / "inventories/lab"
SLURMD = {
    "package": "slurmd",
    "installed": "22.05.8-4",
    "version": "22.05.8-4+deb12u3",
    "archive": "bookworm-security/main",
    "security": True,
}
HOSTS = ["lab-access", "lab-cpu-01", "lab-cpu-02", "lab-gpu-01", "lab-gpu-02"]


def answer(*rows: dict[str, Any], days: int | None = 0) -> dict[str, str]:
    return {"stdout": json.dumps({"updates": rows, "lists_days": days}), "stderr": ""}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch):
    def shown(replies: Found | AskError) -> tuple[int, list[list[str]], str]:
        def ask(*words: object) -> Found:
            assert words == (LAB, "updates.yml", HOSTS, "stdout")
            if isinstance(replies, AskError):
                raise replies
            return replies

        monkeypatch.setattr(updates, "ask", ask)
        result = CliRunner().invoke(app, ["updates", str(LAB)], env={"COLUMNS": "200"})
        return (
            result.exit_code,
            [line.split() for line in result.stdout.splitlines()],
            result.stderr,
        )

    return shown


def test_each_update_has_a_line_with_its_hosts(shown) -> None:
    munge = SLURMD | {"package": "munge", "archive": "bookworm/main", "security": False}
    replies = {host: answer(SLURMD) for host in HOSTS[1:]} | {"lab-access": answer(munge)}
    code, lines, errors = shown(Found(replies, []))
    assert (code, errors) == (0, "")
    versions = ["22.05.8-4", "22.05.8-4+deb12u3"]
    assert lines[1] == ["munge", *versions, "bookworm/main", "no", "lab-access"]
    every = "lab-cpu-[01-02],lab-gpu-[01-02]"
    assert lines[2] == ["slurmd", *versions, "bookworm-security/main", "yes", every]


def test_a_node_s_texts_are_neither_markup_nor_control_characters(shown) -> None:
    """A link that a terminal opens, and markup of rich that is wrong and ended the program."""
    odd = SLURMD | {"package": "[link=http://x]slurmd[/]\x1b]0;title\x07", "archive": "[/b]"}
    code, lines, errors = shown(Found({"lab-cpu-01": answer(odd)}, []))
    assert (code, errors) == (0, "")
    assert lines[1][0] == "[link=http://x]slurmd[/]"
    assert "[/b]" in lines[1]
    assert all(word.isprintable() for line in lines for word in line)


def test_nothing_pending_is_said(shown) -> None:
    code, lines, _ = shown(Found(dict.fromkeys(HOSTS, answer()), []))
    assert (code, " ".join(lines[0])) == (0, "5 hosts, no newer version of a package that is kept")


@pytest.mark.parametrize("days", [3, None])
def test_lists_that_are_old_may_lack_some(shown, days: int | None) -> None:
    replies = dict.fromkeys(HOSTS, answer()) | {"lab-access": answer(days=days)}
    code, _, errors = shown(Found(replies, []))
    assert code == 0
    assert errors.startswith("lab-access: no `apt-get update` in the last 2 days")


SILENT = {
    "away": (Found({}, ["lab-access: gone"]), "lab-access: gone\n"),
    "nobody was asked": (AskError("no Ansible"), "error: no Ansible\n"),
    "not installed": (
        Found({"lab-access": {"stdout": "", "stderr": ""}}, []),
        "lab-access: has no muster-updates; run site.yml, which installs it\n",
    ),
    "failed": (
        Found({"lab-access": {"stdout": "", "stderr": "apt-cache: E: broken\n"}}, []),
        "lab-access: muster-updates failed: apt-cache: E: broken; run it there: sudo "
        "/usr/local/sbin/muster-updates --json\n",
    ),
}


@pytest.mark.parametrize("case", SILENT)
def test_a_host_without_a_report_is_named(shown, case: str) -> None:
    replies, said = SILENT[case]
    code, _, errors = shown(replies)
    assert (code, errors) == (4, said)


REPORT = {"updates": [SLURMD], "lists_days": 0}
UPDATES, DAYS, OUTPUT = "updates", "lists_days", "stdout"
ODD: dict[str, tuple[Any, str]] = {
    "no mapping": ([REPORT], UPDATES),
    "not what was asked for": ({"x": 1}, UPDATES),
    "no list": ({**REPORT, "updates": SLURMD}, UPDATES),
    "a row that is a text": ({**REPORT, "updates": ["slurmd"]}, UPDATES),
    "a row without a version": (
        {**REPORT, "updates": [{key: SLURMD[key] for key in SLURMD if key != "version"}]},
        UPDATES,
    ),
    "a version that is a list": ({**REPORT, "updates": [SLURMD | {"version": []}]}, UPDATES),
    "days as a text": ({**REPORT, "lists_days": "3"}, DAYS),
    "days that are no number": ({**REPORT, "lists_days": float("nan")}, DAYS),
    "too many days": ({**REPORT, "lists_days": 10**400}, DAYS),
}


def suspected(host: str, field: str) -> str:
    return (
        f"{host}: its report can't be right: {field} is missing or of another type; find out who "
        "changed programs there, or install the host again\n"
    )


@pytest.mark.parametrize("case", ODD)
def test_a_report_that_can_not_be_right_leaves_the_others_theirs(shown, case: str) -> None:
    """Root of a host says what it likes."""
    report, field = ODD[case]
    odd = {"stdout": json.dumps(report), "stderr": ""}
    code, lines, errors = shown(Found({"lab-cpu-01": odd, "lab-cpu-02": answer(SLURMD)}, []))
    assert (code, errors) == (4, suspected("lab-cpu-01", field))
    assert [line[-1] for line in lines[1:]] == ["lab-cpu-02"]


ODD_RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an output that is a number": ({"stdout": 7, "stderr": ""}, OUTPUT),
    "an output that is a mapping": ({"stdout": {"updates": []}, "stderr": ""}, OUTPUT),
    "no errors": ({"stdout": json.dumps(REPORT)}, "stderr"),
    "errors that are a list": ({"stdout": "", "stderr": ["x"]}, "stderr"),
    "no JSON": ({"stdout": "hello", "stderr": ""}, UPDATES),
    "thousands of brackets": ({"stdout": "[" * 100_000, "stderr": ""}, UPDATES),
    "many brackets": ({"stdout": "[" * 700 + "]" * 700, "stderr": ""}, UPDATES),
    "thousands of digits": ({"stdout": "9" * 5000, "stderr": ""}, UPDATES),
}


@pytest.mark.parametrize("case", ODD_RESULTS)
def test_so_does_an_output_that_can_not_be_one(shown, case: str) -> None:
    odd, field = ODD_RESULTS[case]
    code, lines, errors = shown(Found({"lab-cpu-01": odd, "lab-cpu-02": answer(SLURMD)}, []))
    assert (code, errors) == (4, suspected("lab-cpu-01", field))
    assert [line[-1] for line in lines[1:]] == ["lab-cpu-02"]


def test_whatever_a_host_reports_all_are_shown() -> None:
    for odd in variants(REPORT):
        answers = {"n1": {"stdout": json.dumps(odd), "stderr": ""}, "n2": answer(SLURMD)}
        found = reports_of(Found(answers, []), updates.PROGRAM, updates.FIELDS)
        assert len(found.answers) + len(found.unreached) == 2
        assert "n2" in found.answers
        lines = [*found.unreached, *updates.old_lists(found.answers)]
        cells = [cell for column in updates.table(found.answers).columns for cell in column.cells]
        assert all(str(text).isprintable() for text in [*lines, *cells])
