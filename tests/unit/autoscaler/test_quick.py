"""The faster autoscaler of the tests is faster everywhere."""

from quick import SPEED, hurry

from muster.autoscaler import daemon
from muster.autoscaler.compute import driver
from muster.autoscaler.reconcile import powering_up
from muster.autoscaler.report import status_file
from muster.autoscaler.slurm import job_start_gate


def test_the_constants_of_all_folders_are_divided():
    changed: dict[tuple[object, str], object] = {}
    hurry(lambda module, name, value: changed.update({(module, name): value}))
    assert changed[daemon, "TICK_S"] == daemon.TICK_S / SPEED
    assert changed[powering_up, "PROBE_S"] == powering_up.PROBE_S / SPEED
    assert changed[status_file, "STALE_S"] == status_file.STALE_S / SPEED
    assert changed[job_start_gate, "TO_SPEAK_S"] == job_start_gate.TO_SPEAK_S / SPEED
    assert changed[driver, "DELETE_PAUSES_S"] == tuple(
        seconds / SPEED for seconds in driver.DELETE_PAUSES_S
    )
