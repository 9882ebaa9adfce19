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
        (Stage.INSERTING, 2),
        (Stage.CREATED, 7),
        (Stage.BOOTING, 10),
        (Stage.STUCK, 90),
        (Stage.BUSY, 95),
    ) == {"created": 6, "running": 3, "registered": 85}


def test_a_stage_that_nobody_saw_took_no_time():
    assert follow((Stage.INSERTING, 2), (Stage.BOOTING, 10), (Stage.IDLE, 30)) == {
        "created": 9,
        "running": 0,
        "registered": 20,
    }


def test_a_vm_that_vanished_is_made_again():
    assert follow(
        (Stage.INSERTING, 2),
        (Stage.CREATED, 7),
        (Stage.WAITING, 20),
        (Stage.INSERTING, 21),
        (Stage.CREATED, 31),
        (Stage.BOOTING, 35),
        (Stage.IDLE, 50),
    ) == {"created": 30, "running": 4, "registered": 15}


def test_a_node_that_was_released_has_none():
    moves = ((Stage.INSERTING, 2), (Stage.RELEASED, 9), (Stage.BOOTING, 10), (Stage.IDLE, 30))
    assert follow(*moves) is None


def test_a_node_in_service_starts_no_more():
    assert follow((Stage.INSERTING, 2), (Stage.IDLE, 30), (Stage.BUSY, 31)) is None
