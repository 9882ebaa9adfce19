"""`reconcile`, case by case: each case of cases/*.yml says in a sentence what is done when."""

from pathlib import Path
from typing import Any

import pytest
import yamlkit
from plankit import Rounds

from muster.autoscaler.reconcile.apply_results import apply_results
from muster.autoscaler.reconcile.model import (
    Failure,
    Inserted,
    Node,
    Power,
    Released,
    ReleaseNodes,
    Vm,
    VmList,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import check_powering_up
from muster.autoscaler.reconcile.records import NodeRecord, Phase, Start, TrackedState

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*.yml"))


def cases() -> list[Any]:
    return [
        pytest.param(case["rounds"], id=f"{file.stem}: {case['case']}")
        for file in CASES
        for case in yamlkit.load(file.read_text(encoding="utf-8"))
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


def test_deleted_vms_are_forgotten_while_another_zone_is_unreachable() -> None:
    played = Rounds()
    for time in range(1000, 6000, 100):
        vms = {"debug-0": f"RUNNING in a since {time - 50}"}
        played.round({"at": time, "nodes": {"debug-0": "off"}, "unreachable": ["b"], "vms": vms})
        played.round({"at": time + 5, "events": ["deleted debug-0 in a"], "vms": {}})
    assert len(played.tracked.node("lab-debug-0").gone) < 3


def test_the_order_of_results_is_that_of_the_nodes_that_they_are_judged_in() -> None:
    """As a set they would have another order in each process, and a schedule not one result."""
    names = tuple(f"lab-debug-{number}" for number in range(20))
    released = Released(ReleaseNodes(names, "", (Power.UP, False, False, False, False)), names)
    after = apply_results(ObservedState("lab", 1, events=[released]), TrackedState())
    assert [*after.changed] == [*names]


@pytest.mark.parametrize(("insert", "older"), [("", {"7": "b"}), ("1", {})])
def test_an_insert_that_runs_may_make_a_vm_in_another_zone(
    insert: str, older: dict[str, str]
) -> None:
    vms = VmList([Vm("lab-debug-0", "b", "7", "STAGING", 100)], ["b"])
    nodes = {"lab-debug-0": Node("lab-debug-0", Power.POWERING_UP)}
    observed = ObservedState("lab", 501, nodes=nodes, nodes_at=501, vms=vms, vms_at=501)
    record = NodeRecord(Phase.INSERTING, 500, Start(500, 490, 500), insert=insert)
    tracked = TrackedState({"lab-debug-0": record}, zones=frozenset("ab"), fresh=True)
    after = check_powering_up(observed, tracked).records["lab-debug-0"]
    assert after.vm is not None
    assert after.vm.older == older


@pytest.mark.parametrize("rounds", cases())
def test_case(rounds: list[dict[str, Any]]) -> None:
    played = Rounds()
    for number, given in enumerate(rounds):
        assert played.round(given) == given["does"], f"round {number}, at {given['at']}"
