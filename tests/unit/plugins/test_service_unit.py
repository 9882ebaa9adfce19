"""When a unit counts as up, by what systemd answers; with a real one in tests/live."""

from types import SimpleNamespace

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import service_unit
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

GIVEN = {"name": "slurmd", "config": [], "reload_config": [], "reload_after_start": False}
PARAMS = {**GIVEN, "log_file": None, "port": None, "timeout_seconds": 60}


def shown(restarts=0, state="active", sub="running"):
    """What `systemctl show` prints."""
    return 0, f"NRestarts={restarts}\nActiveState={state}\nSubState={sub}\n", ""


class Clock:
    """Time that passes in sleep alone."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def wait(answered_by, monkeypatch):
    """Return `wait(answers)`: waits for a unit of which systemd says that; the last one stays."""

    def wait(*answers):
        left = [shown(), *answers]

        def run(command):
            if command[:2] != ["systemctl", "show"]:
                return 0, "", ""
            return left.pop(0) if len(left) > 1 else left[0]

        answered_by(run, service_unit)
        monkeypatch.setattr(service_unit, "time", Clock())
        service_unit.Unit(SimpleNamespace(check_mode=False), PARAMS).wait(deadline=30)

    return wait


NO_ANSWERS = {
    "nothing": (0, "", ""),
    "a failure": (1, "", "Failed to connect to bus: Connection refused"),
    "a failure with half an answer": (-15, "NRestarts=0\n", ""),
    "other properties": (0, "LoadState=loaded\n", ""),
}


@pytest.mark.parametrize("no_answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_no_answer_is_no_end_of_a_daemon(wait, no_answer) -> None:
    wait(no_answer, shown())
    wait(shown(), no_answer, shown())
    # Counted from what systemd says first, which is not 0 for a unit that failed before.
    wait(no_answer, shown(restarts=3))
    with pytest.raises(RefusedError, match="slurmd: not up after 60 s"):
        wait(no_answer)


@pytest.mark.parametrize(
    "ended", [shown(restarts=1), shown(state="failed", sub="failed"), shown(sub="auto-restart")]
)
def test_one_that_ends_or_is_started_again_is_refused(wait, ended) -> None:
    for answers in ([shown(), ended], [NO_ANSWERS["nothing"], shown(), ended]):
        with pytest.raises(RefusedError, match="slurmd: it ended right after its start"):
            wait(*answers)
