"""Ask the machines of an inventory, with a playbook of one task."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster.catalog import printable
from muster.verify import reports
from muster.verify.reports import Fields, is_code, is_text

ROOT = Path(__file__).parents[2]

FORKS = 50
ANSWER_S, AROUND_S = 60, 30
"""Time limits for the answers of one round of `FORKS` hosts, and for what is around it:
connecting may take 10 s."""

GRACE_S = 20
"""From SIGTERM, on which Ansible ends its workers (they have sessions of their own), to SIGKILL."""


PRINTED: Fields = {"stdout": is_text, "stderr": is_text}
ENDED: Fields = {**PRINTED, "rc": is_code}
"""What the result of a program has, and what it has where its exit code matters."""


class AskError(Exception):
    """No host could be asked; the text says why."""


class LateError(AskError):
    """Ansible did not end in time; what it began on hosts may go on there."""


@dataclass(frozen=True)
class Found:
    """The answers of the hosts."""

    answers: Mapping[str, Mapping[str, Any]]
    """Host -> the result of the task there."""
    unreached: list[str]
    """A sentence for each host that gave none."""
    is_late: bool = False
    """Whether one of them did not end in time; what it began may go on there."""


def ask(
    inventory: Path,
    playbook: str,
    hosts: list[str],
    answer: str,
    variables: Mapping[str, Any] | None = None,
    *,
    answer_seconds: int = ANSWER_S,
) -> Found:
    """Run a playbook of ansible/ whose only task asks each host.

    Args:
        inventory: Folder of the inventory.
        playbook: Name of its file.
        hosts: Hosts to ask; at least one.
        answer: Key that the result of a host has if the task ran there.
        variables: Extra variables of the playbook.
        answer_seconds: How long the task may take on a host.

    Raises:
        AskError: Ansible did not start, or, as a LateError, did not end within the time limit.

    """
    seconds = (answer_seconds + AROUND_S) * (1 + (len(hosts) - 1) // FORKS)
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("--inventory", str(inventory.resolve()), "--forks", str(FORKS)),
        *("--extra-vars", _literal(variables or {})),
        *("--timeout", "10", str(ROOT / "ansible" / playbook)),
    ]
    try:
        stdout, stderr = _run(command, seconds)
    except subprocess.TimeoutExpired as error:
        raise LateError(
            f"the machines did not answer within {seconds} s; try one: "
            f"ansible -i {inventory} {hosts[0]} -m ping"
        ) from error
    results = results_of(stdout)
    if results is None:
        lines = (stderr.strip() or stdout.strip()).splitlines() or ["no message"]
        said = printable.one_line(lines[-1])
        said = said.removeprefix("[ERROR]: ").removeprefix("ERROR! ").rstrip(".")
        remedy = "fix that and run again"
        if "vault" in said:
            remedy = "name the file that holds the password in ANSIBLE_VAULT_PASSWORD_FILE"
        raise AskError(f"Ansible did not start: {said}; {remedy}")
    # Root of a host says what it likes, also to the terminal of who asks.
    results = {host: printable.result(results[host]) for host in hosts if host in results}
    answers = {host: result for host, result in results.items() if answer in result}
    silent = [host for host in hosts if host not in answers]
    # As Ansible 2.19 says it.
    late = {host for host in silent if "timedout" in results.get(host, {})}
    unreached = [
        f"{host}: did not answer within {answer_seconds} s; see what hangs there, such as a file "
        "server that is away"
        if host in late
        else f"{host}: could not be asked: {_reason(results.get(host, {}))}; "
        f"try: ansible -i {inventory} {host} -m ping"
        for host in silent
    ]
    return Found(answers, unreached, is_late=bool(late))


def sound(found: Found, fields: Fields) -> Found:
    """Return the answers that can be right; the other hosts are among those that gave none."""
    wrong = reports.problems(found.answers, fields)
    return replace(
        found,
        answers=reports.sound(found.answers, fields),
        unreached=[*found.unreached, *wrong],
    )


def reports_of(found: Found, program: str, fields: Fields) -> Found:
    """Return what a program printed as JSON on each host, in place of the task's results.

    A host where it printed none, or none that can be right, is among those that gave no answer.

    Args:
        found: The results of a task that runs the program with `--json`.
        program: Path of the program on the hosts; a role has installed it.
        fields: What it prints.

    """
    found = sound(found, PRINTED)
    printed, silent = {}, []
    for host, result in found.answers.items():
        report = json_of(result["stdout"])
        said = printable.lines(result["stderr"].strip()).splitlines()
        name = Path(program).name
        if report is not None or (result["stdout"] and not said):
            printed[host] = report
        elif said:
            problem = f"{name} failed: {said[-1]}; run it there: sudo {program} --json"
            silent.append(f"{host}: {problem}")
        else:
            silent.append(f"{host}: has no {name}; run site.yml, which installs it")
    return sound(Found(printed, [*found.unreached, *silent]), fields)


def json_of(text: str) -> Any:
    """Return what a host wrote as JSON, fit for a terminal; None for what is none."""
    try:
        # JSON can spell control characters in letters.
        return printable.all_of(json.loads(text))
    except (ValueError, RecursionError):  # digits or brackets by the thousands
        return None


def _literal(value: Any) -> str:
    """Return a value as YAML whose texts Ansible does not take for templates."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)}: {_literal(of)}' for key, of in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    # Not as UTF-16, in which JSON escapes characters and YAML does not.
    text = json.dumps(value, ensure_ascii=False)
    # Only what may be one: with this tag "007" is a number, whatever its quotes say.
    return f"!unsafe {text}" if isinstance(value, str) and "{" in value else text


def _run(command: list[str], seconds: float) -> tuple[str, str]:
    """Run ansible-playbook; return what it wrote to its output and to its errors.

    Raises:
        TimeoutExpired: It took longer. It has been ended; if it did not react to SIGTERM, its
            workers may go on until their hosts answer.

    """
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "muster.slurm.muster_answers",
        "ANSIBLE_NOCOLOR": "1",
        # It would print what hosts send among the lines.
        "ANSIBLE_DEBUG": "0",
    }
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            return process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def results_of(output: str) -> dict[str, Any] | None:
    """Return host -> result of the task in the lines of muster_answers; None if it did not end."""
    results: dict[str, Any] = {}
    ended = False
    for line in output.split("\n"):
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict):
            results |= answer
            ended = ended or not answer
    return results if ended else None


def _reason(result: Mapping[str, Any]) -> str:
    lines = str(result.get("msg", "no answer")).strip().splitlines() or ["no answer"]
    # Ansible puts its own advice before what ssh said.
    return lines[-1].rpartition("over ssh: ")[2].removeprefix("Task failed: ").rstrip(".")
