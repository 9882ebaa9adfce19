"""The table of transitions: complete, without contradictions, and as the documentation has it."""

from collections import Counter
from pathlib import Path

import pytest

from muster.autoscaler.reconcile import in_service_rules, powering_up_rules
from muster.autoscaler.reconcile.records import POWERING_UP, Phase
from muster.autoscaler.reconcile.transitions import ROWS, Act, Evidence, step, table

DOCS = Path(__file__).parents[4] / "docs" / "autoscaler.md"


def test_the_documentation_has_the_table():
    rows = [f"| {phases} | {evidence} | {to} | {act} |" for phases, evidence, to, act in table()]
    head = "| phase | what is seen | next phase | action |\n|---|---|---|---|\n"
    assert head + "\n".join(rows) in DOCS.read_text()


def test_the_documentation_has_each_phase():
    text = DOCS.read_text()
    assert [phase for phase in Phase if f"\n* *{phase}*: " not in text] == []


def test_all_evidence_leads_somewhere():
    assert {evidence for _, evidence, _, _ in ROWS} == set(Evidence)


def test_of_several_things_the_first_one_in_the_table_counts():
    order = list(Evidence)
    assert list(dict.fromkeys(evidence for _, evidence, _, _ in ROWS)) == order
    for rules in (powering_up_rules.LISTED, powering_up_rules.UNLISTED, in_service_rules.RULES):
        places = [order.index(evidence) for evidence, _ in rules]
        assert places == sorted(set(places))


def test_no_phase_has_two_rows_for_the_same_evidence():
    counts = Counter((phase, evidence) for phases, evidence, _, _ in ROWS for phase in phases)
    assert max(counts.values()) == 1


def test_only_a_release_leads_to_released():
    for phases, evidence, _, act in ROWS:
        for phase in phases:
            following, _ = step(phase, evidence, "n")
            if following is Phase.RELEASED and phase is not Phase.RELEASED:
                assert act is Act.RELEASE, (phase, evidence)


def test_a_node_that_slurm_waits_for_leaves_that_only_by_a_verdict():
    """In service or given up by SLURM, or released."""
    for phases, evidence, _, act in ROWS:
        for phase in POWERING_UP & set(phases):
            following, _ = step(phase, evidence, "n")
            if following not in POWERING_UP:
                assert act is Act.RELEASE or evidence is Evidence.NO_LONGER_ASKED


def test_what_the_table_does_not_have_is_said_with_the_node():
    with pytest.raises(ValueError, match=r"lab-debug-0: .*`settled` when its insert failed"):
        step(Phase.SETTLED, Evidence.REFUSED, "lab-debug-0")
