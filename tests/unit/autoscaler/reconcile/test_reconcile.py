"""`reconcile`, case by case: each case of cases/*.yml says in a sentence what is done when."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from plankit import Rounds

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*.yml"))


def cases() -> list[Any]:
    return [
        pytest.param(case["rounds"], id=f"{file.stem}: {case['case']}")
        for file in CASES
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("rounds", cases())
def test_case(rounds: list[dict[str, Any]]) -> None:
    played = Rounds()
    for number, given in enumerate(rounds):
        assert played.round(given) == given["does"], f"round {number}, at {given['at']}"
