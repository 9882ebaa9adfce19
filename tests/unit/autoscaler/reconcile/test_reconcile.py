"""`reconcile`, case by case: each case of cases/*.yml says in a sentence what is done when."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from plankit import Rounds

from muster.autoscaler.reconcile.model import Failure, Inserted

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*.yml"))


def cases() -> list[Any]:
    return [
        pytest.param(case["rounds"], id=f"{file.stem}: {case['case']}")
        for file in CASES
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]


def test_the_failure_of_most_nodes_does_not_hide_that_of_another() -> None:
    """The VM of the third one may be made: it is not asked for elsewhere."""
    played = Rounds()
    asked = {
        "requests": {"r": {"at": 100, "nodes": "debug-[0-2]"}},
        "nodes": {"debug-[0-2]": "powering_up"},
    }
    assert played.round({"at": 101, **asked}) == ["insert debug-[0-2]: n1 in a"]
    [insert] = played.inserts
    full = Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "no room", 503)
    failed = {insert.names[2]: Failure("timeout", "its operation has not ended")}
    played.heard = [Inserted(insert.id, failed, full)]
    assert played.round({"at": 225}) == ["insert debug-[0-1]: n1 in b"]


@pytest.mark.parametrize("rounds", cases())
def test_case(rounds: list[dict[str, Any]]) -> None:
    played = Rounds()
    for number, given in enumerate(rounds):
        assert played.round(given) == given["does"], f"round {number}, at {given['at']}"
