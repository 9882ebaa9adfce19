"""`reconcile` with very many nodes, counted: its calls to Google, and when each has its verdict."""

from plankit import Rounds

from muster.autoscaler.reconcile.model import Probe, ProbeResult, ReleaseNodes
from muster.autoscaler.reconcile.probes import AT_ONCE

MANY = 1000
ALL = f"debug-[0-{MANY - 1}]"


def rounds(
    played: Rounds, at: range, answer_s: int | None
) -> tuple[dict[int, list[str]], dict[str, int]]:
    """Let seconds pass; probes are answered after `answer_s`, None: never.

    Second -> the VMs that are probed; node -> the second in which it is released.
    """
    probed: dict[int, list[str]] = {}
    verdicts: dict[str, int] = {}
    due: dict[int, list[Probe]] = {}
    for now in at:
        played.heard += [
            ProbeResult(probe.name, probe.zone, True, "mount", of_report=probe.report)
            for probe in due.pop(now, [])
        ]
        played.round({"at": now})
        probes = [action for action in played.actions if isinstance(action, Probe)]
        probed[now] = [probe.name for probe in probes]
        if answer_s is not None:
            due[now + answer_s] = probes
        for action in played.actions:
            if isinstance(action, ReleaseNodes):
                verdicts = dict.fromkeys(action.names, now) | verdicts
    return probed, verdicts


def hung() -> Rounds:
    """Boots that began at 110 and never end."""
    played = Rounds()
    played.round(
        {
            "at": 110,
            "requests": {"r": {"at": 100, "nodes": ALL}},
            "nodes": {ALL: "powering_up"},
            "vms": {ALL: "RUNNING in a since 101"},
        }
    )
    return played


def test_boots_that_hang_are_probed_some_at_a_time_and_all_have_their_verdict():
    probed, verdicts = rounds(hung(), range(111, 256), answer_s=1)
    assert len(verdicts) == MANY
    assert {min(verdicts.values()), max(verdicts.values())} == {231, 250}
    asked = [name for names in probed.values() for name in names]
    assert len(set(asked)) == len(asked) == 20 * AT_ONCE
    assert max(map(len, probed.values())) == AT_ONCE


def test_those_whose_time_was_over_first_are_probed_first():
    played = hung()
    played.round(
        {
            "at": 111,
            "nodes": {"spot-0": "powering_up"},
            # They boot again.
            "vms": {"spot-0": "RUNNING in a since 105", ALL: "REPAIRING in a since 101"},
        }
    )
    played.round(
        {"at": 112, "vms": {"spot-0": "RUNNING in a since 105", ALL: "RUNNING in a since 101"}}
    )
    probed, _ = rounds(played, range(113, 240), answer_s=1)
    assert probed[231] == ["lab-spot-0"]
    assert len(probed[232]) == AT_ONCE


def test_a_google_that_does_not_answer_is_asked_no_more_and_delays_no_verdict():
    probed, verdicts = rounds(hung(), range(111, 256), answer_s=None)
    assert set(verdicts.values()) == {250}
    assert len(verdicts) == MANY
    assert len(probed[230]) == AT_ONCE
    assert sum(map(len, probed.values())) == AT_ONCE


def test_vms_that_lists_lack_are_all_probed_some_at_a_time():
    played = Rounds()
    played.round({"at": 110, "nodes": {ALL: "up"}, "vms": {ALL: "RUNNING in a since 1"}})
    played.round({"at": 111, "vms": {}})
    probed, verdicts = rounds(played, range(112, 132 + 2 * MANY // AT_ONCE), answer_s=1)
    # In each of the two zones.
    assert max(map(len, probed.values())) == 2 * AT_ONCE
    assert len({name for names in probed.values() for name in names}) == MANY
    assert not verdicts
