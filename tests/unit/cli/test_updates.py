"""`muster updates CLUSTER`: what the hosts say, as one table; Ansible's part is played."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster.cli import updates
from muster.cli.main import app
from muster.verify.ansible_query import AskError, Found

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
