"""A VM's time of creation is by the daemon's clock, whatever Google's clock and ours show."""

from dataclasses import replace
from email.utils import formatdate

import pytest
from controllerkit import new_cloud
from driverkit import DriverHarness
from quick import FastClock, FastCloudClock

from muster.autoscaler.compute.server_time import ServerTime

DAY = 86400.0


class StoppedClock(FastClock):
    """It shows the start, and what a test adds."""

    def _passed(self) -> float:
        return self.suspended_s


@pytest.fixture
def stopped() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def server(stopped: StoppedClock) -> ServerTime:
    return ServerTime(stopped)


def answer(server: ServerTime, clock: StoppedClock, ahead_s: float, took_s: float = 0.1) -> None:
    """Let an answer come; Google's clock is so far ahead of our system clock."""
    sent = clock.monotonic()
    clock.suspended_s += took_s
    server.answered(formatdate(clock.now() + ahead_s, usegmt=True), sent)


def ahead_s(clock: StoppedClock) -> float:
    """Our system clock's lead over our monotonic one."""
    return clock.now() - clock.monotonic()


@pytest.mark.parametrize("off_s", [-DAY, -3600, 0, 3600, DAY])
def test_it_is_measured_to_a_second(server: ServerTime, stopped: StoppedClock, off_s: float):
    answer(server, stopped, off_s)
    assert server.ahead_s == pytest.approx(ahead_s(stopped) + off_s, abs=0.6)


def test_it_stays_the_same_over_many_answers(server: ServerTime, stopped: StoppedClock):
    answer(server, stopped, 0)
    first = server.ahead_s
    for number in range(2000):
        stopped.suspended_s += 0.37
        # Google's clocks differ a little, and some answers are slow.
        answer(server, stopped, 0.3 * (number % 3 - 1), took_s=(0.05, 0.5, 8)[number % 3])
    assert server.ahead_s == first


def test_a_slow_first_answer_is_corrected(server: ServerTime, stopped: StoppedClock):
    sent = stopped.monotonic()
    date = formatdate(stopped.now(), usegmt=True)
    stopped.suspended_s += 9
    server.answered(date, sent)
    answer(server, stopped, 0)
    assert server.ahead_s == pytest.approx(ahead_s(stopped), abs=2.1)


@pytest.mark.parametrize("step_s", [-3, 3, 600])
def test_a_step_of_googles_clock_is_followed(
    server: ServerTime, stopped: StoppedClock, step_s: float
):
    answer(server, stopped, 0)
    answer(server, stopped, step_s)
    assert server.ahead_s == pytest.approx(ahead_s(stopped) + step_s, abs=0.6)


def test_without_a_date_our_own_clock_counts(server: ServerTime, stopped: StoppedClock):
    stopped.set_s = 600
    server.answered(None, stopped.monotonic())
    assert server.ahead_s == ahead_s(stopped)
    stopped.set_s = 601
    server.answered(None, stopped.monotonic())
    assert server.ahead_s == ahead_s(stopped) - 1


@pytest.mark.parametrize("date", [None, "", "soon"])
def test_an_answer_without_a_date_changes_nothing_after_one_with(
    server: ServerTime, stopped: StoppedClock, date: str | None
):
    answer(server, stopped, 0)
    first = server.ahead_s
    stopped.set_s = 600
    server.answered(date, stopped.monotonic())
    assert server.ahead_s == first


@pytest.mark.parametrize(("off_s", "step_s"), [(-3600, 600), (3600, 3), (3600, -7200)])
def test_a_vm_is_the_same_in_all_lists_whatever_our_clock_shows(
    monkeypatch: pytest.MonkeyPatch, off_s: float, step_s: float
):
    # Not faster: a slow answer of this machine would be one of many seconds.
    ours = FastClock(speed=2)
    googles = replace(ours, set_s=off_s)
    with new_cloud(lambda loop: FastCloudClock(loop, googles)) as cloud:
        monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"{cloud.server.url}/compute/v1/")
        cloud.allow()
        harness = DriverHarness(cloud, ours)
        before = ours.monotonic()
        harness.make("lab-debug-0")
        made = ours.monotonic()
        lists = [harness.google.vms()]
        ours.set_s = step_s
        for _ in range(3):
            ours.sleep(1)
            lists.append(harness.google.vms())
        harness.google.close()
    assert lists == [lists[0]] * 4
    assert before - 2 <= lists[0][0].created <= made + 2
