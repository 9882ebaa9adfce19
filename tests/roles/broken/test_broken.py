"""The tests of a role must notice when its key line is wrong. Run by molecule after break.yml.

What noticed it is written down for ../repaired, which runs after the role has repaired the host.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import yaml


def broken_hosts(scenario: Path) -> list[str]:
    """Return the machines that break.yml is for."""
    settings = yaml.safe_load(Path(os.environ["MOLECULE_FILE"]).read_text(encoding="utf-8"))
    plays = yaml.safe_load((scenario / "break.yml").read_text(encoding="utf-8"))
    named = {play["hosts"] for play in plays}
    return [
        platform["name"] for platform in settings["platforms"] if named & {"all", platform["name"]}
    ]


def failed_assertions(tests: Path, host: str, report: Path) -> list[str]:
    """Run a role's tests on a host up to the first failure; return the names of those that failed.

    Only an assertion is a finding: a test that can't run at all would "notice" anything.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, "--exitfirst", f"--hosts={host}", str(tests)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0, f"break.yml went unnoticed, all tests passed:\n{said}"
    assert report.exists(), said
    failed = [
        case.get("name")
        for case in ET.parse(report).getroot().iter("testcase")  # noqa: S314 (our own file)
        for failure in case.iter("failure")
        if (failure.get("message") or "").startswith(("AssertionError", "assert ", "Failed: "))
    ]
    assert failed, f"no assertion failed:\n{said}"
    return failed


def test_the_role_s_tests_fail_on_each_broken_host(hostspec, noticed, tmp_path):
    scenario = Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
    tests = Path(__file__).parents[1] / f"test_{scenario.name}.py"
    hosts = broken_hosts(scenario)
    assert hosts, "break.yml is for no host of this scenario"
    failed = [
        name
        for host in hosts
        for name in failed_assertions(tests, hostspec(host), tmp_path / f"{host}.xml")
    ]
    noticed.write_text("".join(f"{tests}::{name}\n" for name in failed), encoding="utf-8")
    print("noticed by", *failed)  # noqa: T201
