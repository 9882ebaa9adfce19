"""What the GPU tools print and what the check makes of it; each case is a file in cases/."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from health import gpus, xids
from health.findings import Reading

CASES = sorted((Path(__file__).parent / "cases").glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CASES[0].parent / f"{name}.yml").read_text())


def reading(said: Any) -> Reading:
    """A reading as a case has it: `missing`, `late`, or status and text."""
    if isinstance(said, str):
        return Reading(None, missing={"missing": True, "late": False}[said])
    return Reading(said["status"], said["text"])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_found(path):
    case = load(path.stem)
    said = load("healthy")["readings"] | case["readings"]
    readings = {key: reading(value) for key, value in said.items()}
    findings = [*gpus.findings(case["expected"], readings), xids.finding(readings)]
    lines = {finding.check: f"{finding.state}: {finding.why}" for finding in findings}
    assert lines == case["findings"]


def test_the_cases_name_the_commands_that_are_run():
    run = gpus.COMMANDS | gpus.FABRIC | xids.COMMANDS
    assert {key for path in CASES for key in load(path.stem)["readings"]} == set(run)


def test_no_xid_is_both_fatal_and_a_program_s():
    assert not xids.OF_USERS & xids.FATAL.keys()
