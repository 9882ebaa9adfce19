"""What is asked of machines ends within its time, whatever a machine does."""

from pathlib import Path

import pytest
from waiting import until

from muster.verify import ansible_query

HANGS = """#!/bin/sh
# The Python of a machine that hangs.
touch "$0.began"
"$0.sleep" 600
exit 1
"""


def processes_of(path: Path) -> list[str]:
    """Return the command lines that name `path`, of other processes than this one."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(path) in line:
            lines.append(line)
    return lines


def test_a_query_that_takes_too_long_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(HANGS)
    python.chmod(0o755)
    # Its command line has the folder, too.
    (tmp_path / "python.sleep").symlink_to("/bin/sleep")
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(
        "compute: {hosts: {n1: {ansible_connection: local, "
        f"ansible_python_interpreter: {python}}}}}}}\n"
    )
    monkeypatch.setattr(ansible_query, "AROUND_S", 2)
    with pytest.raises(
        ansible_query.AskError, match="did not answer within 12 s; try one: ansible"
    ):
        ansible_query.ask(inventory, "cache.yml", ["n1"], "stdout", answer_seconds=10)
    assert (tmp_path / "python.began").exists(), "it ran before the time was over"
    until(lambda: processes_of(tmp_path) == [], "all processes have ended", 10)


ECHO = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "{{ given }}"}
"""


def test_a_text_that_was_typed_is_no_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ansible").mkdir()
    (tmp_path / "ansible/echo.yml").write_text(ECHO)
    (tmp_path / "ansible.cfg").touch()
    (tmp_path / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    monkeypatch.setattr(ansible_query, "ROOT", tmp_path)
    given = {"words": ["{{ lookup('pipe', 'id') }}", 'a "b" \\ü'], "days": 7, "none": None}
    found = ansible_query.ask(tmp_path / "hosts.yml", "echo.yml", ["n1"], "msg", {"given": given})
    assert found.answers["n1"]["msg"] == given
