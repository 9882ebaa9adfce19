"""Token buckets: urgent calls go first, and all slow down when Google refuses one."""

import threading
import time

import pytest

from muster.autoscaler.compute.rate_limiter import LEAST_PACE, Bucket, TooLateError


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def soon() -> float:
    return time.monotonic() + 5


def test_the_rate_holds_after_the_burst(stop: threading.Event):
    bucket = Bucket(50, 5, stop)
    assert bucket.left == 5
    began = time.monotonic()
    for _ in range(15):
        bucket.take(soon())
    assert 0.18 <= time.monotonic() - began < 1
    assert bucket.waited_s >= 0.18
    assert bucket.left == 0


def test_many_threads_have_one_rate(stop: threading.Event):
    bucket = Bucket(50, 5, stop)
    began = time.monotonic()
    threads = [threading.Thread(target=bucket.take, args=(soon(),)) for _ in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began >= 0.38


def test_half_of_the_bucket_is_kept_for_urgent_calls(stop: threading.Event):
    bucket = Bucket(1, 10, stop)
    at_once = time.monotonic() + 0.05
    bucket.take(at_once, urgent=False, count=5)
    with pytest.raises(TooLateError):
        bucket.take(at_once, urgent=False)
    for _ in range(5):
        bucket.take(at_once)
    with pytest.raises(TooLateError):
        bucket.take(at_once)


def test_refusals_at_the_same_time_halve_the_pace_once(stop: threading.Event):
    bucket = Bucket(100, 10, stop)
    for _ in range(5):
        bucket.slow()
    assert bucket.pace == pytest.approx(0.5, abs=0.05)
    began = time.monotonic()
    bucket.take(soon(), count=5)
    assert time.monotonic() - began >= 0.08


def test_further_refusals_slow_down_to_a_bound(
    stop: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bucket = Bucket(100, 10, stop)
    for _ in range(20):
        now[0] += 1.1
        bucket.slow()
    assert bucket.pace < LEAST_PACE + 0.05
    now[0] += 60
    assert bucket.pace == 1


def test_waiting_calls_end_with_the_driver(stop: threading.Event):
    bucket = Bucket(0.001, 1, stop)
    bucket.take(soon())
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(TooLateError):
        bucket.take(float("inf"))
