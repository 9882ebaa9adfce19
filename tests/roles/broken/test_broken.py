"""The tests of a role must notice when its key line is spoilt. Run by molecule after break.yml."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def test_the_role_s_tests_fail_on_a_spoilt_host(tmp_path):
    role = os.environ["MOLECULE_SCENARIO_NAME"]
    tests = Path(__file__).parents[1] / f"test_{role}.py"
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"),
            str(tests),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode != 0, f"break.yml went unnoticed: all of {tests.name} passed"
    suite = ET.parse(report).getroot()  # noqa: S314 (our own file)
    # Only an assertion is a finding: a test that can't run at all would "notice" anything.
    found = [
        case.get("name")
        for case in suite.iter("testcase")
        for failure in case.iter("failure")
        if (failure.get("message") or "").startswith(("AssertionError", "assert "))
    ]
    errors = [case.get("name") for case in suite.iter("testcase") if case.find("error") is not None]
    assert found, f"no assertion of {tests.name} failed:\n{done.stdout}{done.stderr}"
    assert not errors, f"tests of {tests.name} could not run:\n{done.stdout}{done.stderr}"
    print("noticed by:", *found)  # noqa: T201
