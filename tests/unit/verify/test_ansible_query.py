"""What is asked of machines ends within its time, whatever a machine does."""

import json
from pathlib import Path
from typing import Any

import pytest
from odd_answers import CLIPBOARD
from waiting import until

from muster.verify import ansible_query
from muster.verify.reports import has, is_text, many

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
        ansible_query.LateError, match="did not answer within 12 s; try one: ansible"
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
    plugins = ansible_query.ROOT / "ansible/collections"
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\ncollections_path = {plugins}\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    monkeypatch.setattr(ansible_query, "ROOT", tmp_path)
    given = {"words": ["{{ lookup('pipe', 'id') }}", 'a "b" \\ü'], "days": 7, "none": None}
    given["texts"] = ["007", "1e5", "null", "yes", "2026-11-30"]
    found = ansible_query.ask(tmp_path / "hosts.yml", "echo.yml", ["n1"], "msg", {"given": given})
    assert found.answers["n1"]["msg"] == given


SAYS = """#!/bin/sh
# The Python of a machine whose root says what it likes.
cat "$0.answer"
"""


def test_an_answer_that_ansible_can_not_print_hides_no_other(tmp_path: Path) -> None:
    """Ansible takes about 240 brackets in each other, and printed nothing for just as many."""
    depths = range(224, 256, 4)
    hosts = []
    for depth in depths:
        python = tmp_path / f"python-{depth}"
        python.write_text(SAYS)
        python.chmod(0o755)
        brackets = "[" * depth + "]" * depth
        (tmp_path / f"{python.name}.answer").write_text(f'{{"report": {{"name": {brackets}}}}}')
        hosts.append(f"n{depth}: {{ansible_python_interpreter: {python}}}")
    hosts.append("other: {ansible_python_interpreter: /usr/bin/python3}")
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(
        f"all: {{vars: {{ansible_connection: local}}, hosts: {{{', '.join(hosts)}}}}}\n"
    )
    names = [*(f"n{depth}" for depth in depths), "other"]
    asked = {"hardware_paths": [], "hardware_people": [], "hardware_groups": []}
    found = ansible_query.ask(inventory, "hardware.yml", names, "report", asked)
    assert "sockets" in found.answers["other"]["report"]
    assert len(found.answers) + len(found.unreached) == len(names)


def test_a_task_that_takes_too_long_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ansible's own result of one."""
    (tmp_path / "ansible").mkdir()
    (tmp_path / "ansible/slow.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "    - {ansible.builtin.command: sleep 60, changed_when: false, failed_when: false, "
        "timeout: 3}\n"
    )
    plugins = ansible_query.ROOT / "ansible/collections"
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\ncollections_path = {plugins}\n")
    (tmp_path / "hosts.yml").write_text(
        "all: {hosts: {n1: {ansible_connection: local, "
        "ansible_python_interpreter: /usr/bin/python3}}}\n"
    )
    monkeypatch.setattr(ansible_query, "ROOT", tmp_path)
    found = ansible_query.ask(
        tmp_path / "hosts.yml", "slow.yml", ["n1"], "stdout", answer_seconds=3
    )
    said = "n1: did not answer within 3 s; see what hangs there, such as a file server that is away"
    assert found == ansible_query.Found({}, [said], is_late=True)


def said_by(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> ansible_query.Found:
    """Return what `ask` returns where Ansible has this result of a host."""
    output = f"{json.dumps({'n1': result})}\n{{}}\n"
    monkeypatch.setattr(ansible_query, "_run", lambda *_: (output, ""))
    return ansible_query.ask(Path(), "hardware.yml", ["n1"], "report")


def test_answers_are_in_the_order_of_hosts_as_they_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They come in any order, and what is shown of hosts is to be the same in each run."""
    lines = [*({name: {"report": {}}} for name in ("n3", "n1", "n2")), {}]
    output = "\n".join(map(json.dumps, lines))
    monkeypatch.setattr(ansible_query, "_run", lambda *_: (output, ""))
    found = ansible_query.ask(Path(), "hardware.yml", ["n1", "n2", "n3"], "report")
    assert list(found.answers) == ["n1", "n2", "n3"]


@pytest.mark.parametrize("line", ["0", "null", "[]", '"x"', "[" * 100_000])
def test_other_lines_than_those_of_hosts_are_no_answers(line: str) -> None:
    assert ansible_query.results_of(f"{line}\n") is None
    assert ansible_query.results_of(f'{line}\n{{"n1": {{}}}}\n{{}}\n') == {"n1": {}}


def test_a_host_s_answer_does_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root of a node says what it likes, and an administrator reads it on a laptop."""
    result = {
        "report": {"gpus": [f"/dev/nvidia0{CLIPBOARD}"], f"key{CLIPBOARD}": "a\nb", "cores": 2},
        "stdout": f"one{CLIPBOARD}\ntwo",
    }
    answer = said_by(result, monkeypatch).answers["n1"]
    shown = CLIPBOARD.replace("\x1b", " ").replace("\x07", " ")
    assert answer["report"] == {
        "gpus": [f"/dev/nvidia0{shown}"],
        f"key{shown}": "a b",
        "cores": 2,
    }
    assert answer["stdout"] == f"one{shown}\ntwo"


def test_nor_does_why_a_host_could_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said_by({"unreachable": True, "msg": f"first\nover ssh: {CLIPBOARD}x"}, monkeypatch)
    [sentence] = found.unreached
    assert sentence.isprintable()
    assert sentence.startswith("n1: could not be asked:  ]52;c;cm0gLXJmIH4K x; try: ")


def test_nor_does_ansible_s_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ansible_query, "_run", lambda *_: ("", f"ERROR! {CLIPBOARD}\n"))
    with pytest.raises(ansible_query.AskError) as caught:
        ansible_query.ask(Path(), "hardware.yml", ["n1"], "report")
    assert str(caught.value).isprintable()


def test_nor_does_the_report_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON spells control characters in letters, which are clean until they are read."""
    program = "/usr/local/sbin/muster-updates"
    told = json.dumps({"updates": [{"package": f"slurmd{CLIPBOARD}"}]})
    answers = {
        "n1": {"stdout": told, "stderr": ""},
        "n2": {"stdout": "", "stderr": f"one\n{CLIPBOARD}"},
    }
    fields = {"updates": many(has({"package": is_text}))}
    found = ansible_query.reports_of(ansible_query.Found(answers, []), program, fields)
    assert found.answers["n1"]["updates"][0]["package"].isprintable()
    [sentence] = found.unreached
    assert sentence.isprintable()
    assert "muster-updates failed: " in sentence
