"""The fast clock is as fast as it says, and the same in all processes."""

import time
from dataclasses import replace

import pytest
from quick import SPEED, FastClock, since_boot


def test_its_seconds_pass_faster():
    clock = FastClock()
    began, real = clock.monotonic(), since_boot()
    clock.sleep(3)
    passed, really = clock.monotonic() - began, since_boot() - real
    assert really >= 3 / SPEED
    assert passed == pytest.approx(SPEED * really, abs=0.5)


def test_it_waits_as_long_as_it_says():
    waited: list[float] = []
    FastClock().wait(waited.append, 30)
    FastClock().wait(waited.append, -1)
    assert waited == [30 / SPEED, 0]


def test_clocks_with_the_same_start_show_the_same_time():
    clock = FastClock()
    other = replace(clock)
    time.sleep(0.1)
    assert clock.monotonic() == pytest.approx(other.monotonic(), abs=0.5)
    assert clock.now() == pytest.approx(other.now(), abs=0.5)


def test_setting_it_changes_its_date_alone():
    clock = FastClock()
    before = clock.monotonic(), clock.now()
    clock.set_s = -600
    assert clock.monotonic() >= before[0]
    assert clock.now() < before[1] - 500
