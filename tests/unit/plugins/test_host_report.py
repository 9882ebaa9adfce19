"""What the last play hears from a host: its packages and chronyd's sources."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SOURCES = "^,*,192.0.2.1,2,6,377,21,0.000012,0.000015,0.004\n^,?,192.0.2.2,0,8,0,4294967295,0,0,0\n"
PROGRAMS = {
    "systemctl": "echo active",
    "munge": "echo MUNGE:AwQ",
    "muster-updates": """echo '{"updates": [{"package": "munge"}], "lists_days": 1}'""",
    # Names that jobs share are not all below lib: muster.verify.verdict judges them.
    "dpkg-query": 'case "$*" in *nvidia?*openmpi?*) echo "ii  nvidia-smi 535";; esac; exit 1',
}


@pytest.fixture
def report(tmp_path, run_module):
    def report(
        chronyc: str,
        commands: Sequence[list[str]] = (),
        module_packages: Sequence[str] = (),
        **programs: str,
    ) -> dict[str, Any]:
        for name, script in {**PROGRAMS, "chronyc": chronyc, **programs}.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        arguments = {
            "units": ["munge"],
            "commands": [*commands],
            "module_packages": [*module_packages],
        }
        outcome = run_module("host_report", arguments, env={**os.environ, "PATH": path})
        assert outcome.code == 0, outcome.printed
        return outcome["report"]

    return report


def test_sources_are_reported_with_their_state(report, tmp_path: Path) -> None:
    (tmp_path / "sources").write_text(SOURCES)
    script = f'[ "$*" = "-n -c sources" ] && cat {tmp_path}/sources'
    assert report(script)["time_sources"] == {"192.0.2.1": "*", "192.0.2.2": "?"}


def test_no_source_is_told_from_no_answer(report) -> None:
    assert report("true")["time_sources"] == {}
    assert report("echo '506 Cannot talk to daemon'; exit 1")["time_sources"] is None


def test_drivers_and_mpi_are_among_the_packages(report) -> None:
    assert report("true")["packages"] == {"nvidia-smi": "535"}


def test_what_programs_print_that_fail_is_reported(report) -> None:
    commands = [
        ["sh", "-c", "echo all is well"],
        ["sh", "-c", "echo users get through; exit 1"],
        ["sh", "-c", "echo no nft >&2; exit 2"],
        ["false"],
    ]
    said = ["users get through", "no nft", "false ended with 1"]
    assert report("true", commands)["failed"] == said


def test_a_program_that_is_not_there_has_failed(report) -> None:
    (said,) = report("true", [["/nowhere/muster-guard", "check"]])["failed"]
    assert said.startswith("/nowhere/muster-guard: No such file or directory; ")


def test_updates_that_wait_are_reported(report) -> None:
    assert report("true")["updates"] == [{"package": "munge"}]


def test_why_updates_are_not_known_is_reported(report) -> None:
    broken = report("true", **{"muster-updates": "echo 'apt-config: broken' >&2; exit 1"})
    assert broken["updates"] == []
    (said,) = broken["failed"]
    assert said.startswith("muster-updates failed: apt-config: broken; run it there: /")


def test_what_modules_need_is_reported_with_what_is_missing_of_it(report) -> None:
    script = 'case "$*" in *" python3-venv a-b") echo "ii  python3-venv 3.11";; esac; exit 1'
    needed = ["python3-venv", "a-b"]
    found = report("true", module_packages=needed, **{"dpkg-query": script})
    assert found["module_packages"] == {"python3-venv": "3.11", "a-b": None}


def test_without_packages_that_modules_need_dpkg_is_not_asked_for_all(report) -> None:
    assert report("true")["module_packages"] == {}


def test_the_distribution_s_interpreter_and_the_driver_are_reported(report) -> None:
    found = report("true")
    assert re.fullmatch(r"3\.\d+\.\d+\S*", found["python"])
    # Machines that run these tests have none.
    assert found["driver"] == "none"
