"""Definitions by somebody who has not read the checks: each is answered as its author expects.

Where Muster's answer is otherwise, and right, answers.yml has it with the reason.
"""

from collections import Counter
from pathlib import Path

import casekit
import pytest
from casekit import Case

CPU_SECONDS = 5.0
LEAST_CASES = 450
LEAST_ACCEPTED = 0.18
MOST_ANSWERS = 0.03


@pytest.mark.parametrize("base", sorted(folder.name for folder in casekit.BASES.iterdir()))
def test_a_base_is_accepted(base: str, tmp_path: Path) -> None:
    expected = casekit.Expected(("accepted",))
    casekit.make(Case("base", "all cases are made of it", expected, base), tmp_path)
    reply = casekit.ask(tmp_path)
    assert (reply.answer, reply.messages) == ("accepted", ())


@pytest.mark.parametrize("case", casekit.cases(), ids=str)
def test_a_case_is_answered_as_its_author_expects(case: Case, tmp_path: Path) -> None:
    casekit.make(case, tmp_path)
    reply = casekit.ask(tmp_path)
    said = "\n".join(reply.messages)
    assert reply.answer != "crashed", said
    assert reply.seconds < CPU_SECONDS
    otherwise = reply.differs(case.expected)
    if case.name not in casekit.answers():
        assert otherwise is None, f"{otherwise}\n{said}\n({case.why})"
        return
    expected, _ = casekit.answers()[case.name]
    assert reply.differs(expected) is None, f"answers.yml is not true: {said}"
    assert otherwise is not None, "it is answered as it expects: take it out of answers.yml"


def test_there_are_many_cases_and_a_part_of_them_is_right() -> None:
    counts = Counter(answer for case in casekit.cases() for answer in case.expected.answer)
    assert len(casekit.cases()) >= LEAST_CASES
    assert counts["accepted"] >= LEAST_ACCEPTED * len(casekit.cases())


def test_nearly_all_cases_are_answered_as_their_authors_expect() -> None:
    assert len(casekit.answers()) <= MOST_ANSWERS * len(casekit.cases())


def test_each_answer_is_one_of_a_case_and_has_a_reason() -> None:
    known = {case.name for case in casekit.cases()}
    assert casekit.answers().keys() <= known
    assert [name for name, (_, reason) in casekit.answers().items() if len(reason) < 20] == []


def test_each_case_says_why_and_what_a_message_must_mention() -> None:
    for case in casekit.cases():
        assert len(case.why) >= 5, case
        assert case.expected.mentions or "accepted" in case.expected.answer, case
