from muster.autoscaler.report.cold_start import ColdStarts
from muster.autoscaler.report.lifecycle import Stage


def follow(*moves):
    """Return the phases after the last of several moves: stage, time."""
    cold = ColdStarts()
    phases = None
    for stage, now in moves:
        phases = cold.reached("n", stage, now, asked=1)
    return phases


def test_a_start_has_three_phases():
    assert follow(
        (Stage.ASKED, 2), (Stage.MADE, 7), (Stage.BOOTING, 10), (Stage.STUCK, 90), (Stage.BUSY, 95)
    ) == {"made": 6, "running": 3, "registered": 85}


def test_a_stage_that_nobody_saw_took_no_time():
    assert follow((Stage.ASKED, 2), (Stage.BOOTING, 10), (Stage.IDLE, 30)) == {
        "made": 9,
        "running": 0,
        "registered": 20,
    }


def test_a_vm_that_vanished_is_made_again():
    assert follow(
        (Stage.ASKED, 2),
        (Stage.MADE, 7),
        (Stage.WAITING, 20),
        (Stage.ASKED, 21),
        (Stage.MADE, 31),
        (Stage.BOOTING, 35),
        (Stage.IDLE, 50),
    ) == {"made": 30, "running": 4, "registered": 15}


def test_a_node_that_was_released_has_none():
    moves = ((Stage.ASKED, 2), (Stage.RELEASED, 9), (Stage.BOOTING, 10), (Stage.IDLE, 30))
    assert follow(*moves) is None


def test_a_node_in_service_starts_no_more():
    assert follow((Stage.ASKED, 2), (Stage.IDLE, 30), (Stage.BUSY, 31)) is None
