"""What a run of the role verify prints: errors, and no credential of root."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.muster.slurm.plugins.filter.muster import FilterModule

ROOT = Path(__file__).parents[3]
CREDENTIAL = f"MUNGE:{'AwQDAAC+/' * 15}=:"
PROGRAMS = {
    "systemctl": "echo active",
    "munge": f"echo {CREDENTIAL}",
    "unmunge": "cat >/dev/null",
    "dpkg-query": "exit 1",
    "chronyc": "exit 1",
    "muster-updates": """echo '{"updates": []}'""",
    "scontrol": "echo 'Slurmctld(primary) at here is UP'",
}

REPORT = {
    **{"inactive": {}, "failed": [], "clock": 1.0, "earliest": 1.0, "latest": 1.0},
    **{"updates": [], "time_sources": None, "credential": {"text": CREDENTIAL}},
    **{"system": "12", "kernel": "6", "driver": "none", "python": "3"},
    **{"packages": {}, "module_packages": {}},
}


@pytest.fixture
def verify(tmp_path: Path):
    """Run the role on this machine, with simulated programs, as verbose as people do."""

    def verify(
        programs: dict[str, str], liar: object = None, **variables: object
    ) -> tuple[int, str]:
        for name, script in {**PROGRAMS, **programs}.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        task = {"ansible.builtin.import_role": {"name": "verify"}}
        play = {
            "hosts": "all",
            "gather_facts": False,
            "tasks": [task],
            "vars": {"verify_controller": "", "verify_units": ["munge"], **variables},
        }
        playbook = tmp_path / "play.yml"
        playbook.write_text(yaml.safe_dump([play]))
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = {"here": local}
        if liar is not None:
            # In place of each module, this is what root of a second host has run.
            python = tmp_path / "python"
            (tmp_path / "said").write_text(json.dumps(liar))
            python.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {tmp_path}/said\n")
            python.chmod(0o755)
            hosts["liar"] = {**local, "ansible_python_interpreter": str(python)}
        inventory = tmp_path / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"controller": {"hosts": hosts}}))
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                *("-vvvv", "--inventory", str(inventory), str(playbook)),
            ],
            cwd=ROOT,
            env=os.environ
            | {"ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        # Long sentences are broken into lines.
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return verify


def test_credentials_are_in_no_output(verify, tmp_path: Path) -> None:
    code, output = verify({"unmunge": f"cat >{tmp_path}/given"})
    assert code == 0, output
    assert "this host works" in output
    # It was there to be printed.
    assert (tmp_path / "given").read_text() == f"{CREDENTIAL}\n"
    assert "MUNGE:" not in output


def test_nor_when_something_is_wrong_which_is_said(verify) -> None:
    code, output = verify(
        {"unmunge": "cat >/dev/null; echo 'STATUS: Expired credential (15)'; exit 1"}
    )
    assert code == 2
    assert "here: it can''t decode its own munge credential: Expired credential" in output
    assert "MUNGE:" not in output


def test_an_error_of_the_module_is_shown(verify) -> None:
    code, output = verify({"systemctl": "exec kill -9 $PPID"})
    assert code == 2
    assert "censored" not in output
    assert "[here]: FAILED! =>" in output
    assert "msg:" in output.partition("FAILED! =>")[2]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "it gave no report; run again"),
        ({"report": {}}, "its report can''t be right: inactive is missing"),
        ({"report": {"kernel": ["x"]}}, "its report can''t be right: inactive is missing"),
    ],
)
def test_a_host_s_report_that_can_not_be_right_is_its_own_problem(verify, said, told) -> None:
    code, output = verify({"systemctl": "echo failed"}, {"changed": False, **said})
    assert code == 2
    assert f"liar: {told}" in output
    assert "here: munge is failed" in output


@pytest.mark.parametrize(
    "text",
    [
        *("here", "", f"MUNGE:{'A' * 10}:", f"MUNGE:{'A' * 2000}:", f"{CREDENTIAL}\n"),
        *(f"{CREDENTIAL}\ud800", "MUNGE:{{ 1 }}AwQDAAC+AwQDAAC+AwQDAAC+AwQDAAC+AwQDAAC+:"),
    ],
)
def test_no_other_text_is_decoded_as_a_credential(text: str) -> None:
    """Ansible would take it out of all that the controller reports."""
    filters = FilterModule().filters()
    hosts = {"n1": {**REPORT, "credential": {"text": text}}, "n2": REPORT}
    # An empty one can't be decoded, which is said.
    assert filters["muster_credentials"](hosts) == {"n1": "", "n2": CREDENTIAL}


def test_a_host_takes_no_word_out_of_what_the_controller_reports(verify) -> None:
    said = {"report": {**REPORT, "credential": {"text": "Expired"}}}
    programs = {"unmunge": "cat >/dev/null; echo 'STATUS: Expired credential'; exit 1"}
    code, output = verify(programs, {"changed": False, **said})
    assert code == 2
    for host in ("here", "liar"):
        assert f"{host}: it can''t decode its own munge credential: Expired credential" in output


def test_what_hosts_report_does_not_control_the_terminal() -> None:
    """Root of a node decides its reason, and what the programs there print."""
    attack = "gone\x1b]52;c;AAAA\a\x1b[2J\x9b2J"
    node = {"name": "n1", "partition": "cpu", "user": "root", "reason": attack}
    update = {"package": attack, "version": "1", "security": False}
    report = {
        **REPORT,
        "failed": [attack],
        "updates": [update],
        "credential": {"error": attack},
    }
    filters = FilterModule().filters()
    for state, name in (("down", "muster_problems"), ("drained", "muster_notes")):
        cluster = {"undecoded": {}, "jobs": [], "untried": []}
        cluster["nodes"] = [{**node, "state": state}]
        said = filters[name]({"n1": report}, cluster, {})
        assert len([line for line in said if "gone" in line]) > 1
        assert [line for line in said if not line.isprintable()] == []
