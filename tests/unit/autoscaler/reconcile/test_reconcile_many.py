"""The plan with very many nodes, counted: what it asks of Google, and when each has its verdict."""

from plankit import Rounds

from muster.autoscaler.reconcile.model import Probe, ProbeResult, ReleaseNodes
from muster.autoscaler.reconcile.probes import AT_ONCE

MANY = 1000
ALL = f"debug-[0-{MANY - 1}]"


def rounds(
    game: Rounds, at: range, answer_s: int | None
) -> tuple[dict[int, list[str]], dict[str, int]]:
    """Let seconds pass; looks are answered so late, None: never.

    Second -> the VMs that are looked at; node -> the second in which it is released.
    """
    looks: dict[int, list[str]] = {}
    verdicts: dict[str, int] = {}
    due: dict[int, list[Probe]] = {}
    for now in at:
        game.heard = [ProbeResult(of.name, of.zone, True, "mount") for of in due.pop(now, [])]
        game.round({"at": now})
        found = [each for each in game.actions if isinstance(each, Probe)]
        looks[now] = [each.name for each in found]
        if answer_s is not None:
            due[now + answer_s] = found
        for each in game.actions:
            if isinstance(each, ReleaseNodes):
                verdicts = dict.fromkeys(each.names, now) | verdicts
    return looks, verdicts


def hung() -> Rounds:
    """Boots that began at 110 and never end."""
    game = Rounds()
    game.round(
        {
            "at": 110,
            "requests": {"r": {"at": 100, "nodes": ALL}},
            "nodes": {ALL: "powering_up"},
            "vms": {ALL: "RUNNING in a since 101"},
        }
    )
    return game


def test_boots_that_hang_are_asked_some_at_a_time_and_all_have_their_verdict():
    looks, verdicts = rounds(hung(), range(111, 256), answer_s=1)
    assert len(verdicts) == MANY
    assert {min(verdicts.values()), max(verdicts.values())} == {231, 250}
    asked = [name for names in looks.values() for name in names]
    assert len(set(asked)) == len(asked) == 20 * AT_ONCE
    assert max(map(len, looks.values())) == AT_ONCE


def test_those_whose_time_was_over_first_are_asked_first():
    game = hung()
    game.round(
        {
            "at": 111,
            "nodes": {"spot-0": "powering_up"},
            "vms": {"spot-0": "RUNNING in a since 105", ALL: "STAGING in a since 101"},
        }
    )
    game.round(
        {"at": 112, "vms": {"spot-0": "RUNNING in a since 105", ALL: "RUNNING in a since 101"}}
    )
    looks, _ = rounds(game, range(113, 240), answer_s=1)
    assert looks[231] == ["lab-spot-0"]
    assert len(looks[232]) == AT_ONCE


def test_a_google_that_does_not_answer_is_asked_no_more_and_delays_no_verdict():
    looks, verdicts = rounds(hung(), range(111, 256), answer_s=None)
    assert set(verdicts.values()) == {250}
    assert len(verdicts) == MANY
    assert len(looks[230]) == AT_ONCE
    assert sum(map(len, looks.values())) == AT_ONCE


def test_vms_that_lists_lack_are_looked_for_some_at_a_time_and_each_of_them():
    game = Rounds()
    game.round({"at": 110, "nodes": {ALL: "up"}, "vms": {ALL: "RUNNING in a since 1"}})
    game.round({"at": 111, "vms": {}})
    looks, verdicts = rounds(game, range(112, 132 + 2 * MANY // AT_ONCE), answer_s=1)
    assert max(map(len, looks.values())) == AT_ONCE
    assert len({name for names in looks.values() for name in names}) == MANY
    assert not verdicts
