"""Token buckets: urgent calls go first, and all slow down when Google refuses one."""

import threading
from collections.abc import Callable

import pytest
from quick import FastClock

from muster.autoscaler.compute.rate_limiter import LEAST_PACE, Bucket, TooLateError


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def bucket(clock: FastClock, stop: threading.Event) -> Callable[[float, int], Bucket]:
    return lambda per_second, burst: Bucket(per_second, burst, stop, clock=clock)


SOON_S = 300


def test_the_rate_holds_after_the_burst(clock: FastClock, bucket):
    calls = bucket(5, 5)
    assert calls.left == 5
    began = clock.monotonic()
    for _ in range(15):
        calls.take(began + SOON_S)
    assert 1.9 <= clock.monotonic() - began < 30
    assert calls.waited_s >= 1.9
    assert calls.left <= 1


def test_many_threads_have_one_rate(clock: FastClock, bucket):
    calls = bucket(5, 5)
    began = clock.monotonic()
    threads = [threading.Thread(target=calls.take, args=(began + SOON_S,)) for _ in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.monotonic() - began >= 3.9


def test_half_of_the_bucket_is_kept_for_urgent_calls(clock: FastClock, bucket):
    calls = bucket(0.001, 10)
    at_once = clock.monotonic() + 10
    calls.take(at_once, urgent=False, count=5)
    with pytest.raises(TooLateError):
        calls.take(at_once, urgent=False)
    for _ in range(5):
        calls.take(at_once)
    with pytest.raises(TooLateError):
        calls.take(at_once)


def test_many_are_taken_in_parts_that_leave_half_of_the_bucket(clock: FastClock, bucket):
    calls = bucket(5, 10)
    began = clock.monotonic()
    calls.take(began + SOON_S, urgent=False, count=20)
    # Some of them are there.
    assert clock.monotonic() - began >= 2.9
    assert calls.left >= 5


def test_those_of_one_lot_are_taken_before_those_of_the_next(clock: FastClock, bucket):
    calls = bucket(5, 4)
    taken: list[float] = []

    def take() -> None:
        calls.take(clock.monotonic() + SOON_S, urgent=False, count=10)
        taken.append(clock.monotonic())

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second, third = sorted(taken)
    assert second - first >= 1.5
    assert third - second >= 1.5


def test_refusals_at_the_same_time_halve_the_pace_once(clock: FastClock, bucket):
    calls = bucket(5, 10)
    for _ in range(5):
        calls.slow()
    assert calls.pace == pytest.approx(0.5, abs=0.1)
    began = clock.monotonic()
    calls.take(began + SOON_S, count=5)
    assert clock.monotonic() - began >= 1.5


def test_further_refusals_slow_down_to_a_bound(clock: FastClock, bucket):
    calls = bucket(100, 10)
    for _ in range(20):
        clock.suspended_s += 1.1
        calls.slow()
    assert calls.pace < LEAST_PACE + 0.05
    clock.suspended_s += 60
    assert calls.pace == 1


def test_waiting_calls_end_with_the_driver(stop: threading.Event, bucket):
    calls = bucket(0.0001, 1)
    calls.take(float("inf"))
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(TooLateError):
        calls.take(float("inf"))
