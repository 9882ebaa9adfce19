"""A call gets an access token when it needs it, or an error that says why there is none."""

import datetime
import threading
from collections.abc import Callable, Iterator

import google.auth.credentials
import pytest
from driverkit import until
from google.auth.exceptions import TransportError
from google.oauth2.credentials import Credentials
from quick import FastClock

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import api_client, credentials
from muster.autoscaler.compute.credentials import Token
from muster.gcp.api import CloudError

SOON_S = 60


class Fake(google.auth.credentials.Credentials):
    """Credentials whose tokens last `lifetime_s`; `down` = the endpoint doesn't answer."""

    def __init__(self, lifetime_s: float, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.lifetime_s = lifetime_s
        self.down = False
        self.refreshed = 0

    def refresh(self, request: object) -> None:  # noqa: ARG002 (google-auth's)
        if self.down:
            raise TransportError("metadata server: timed out")
        self.refreshed += 1
        self.token = f"token-{self.refreshed}"
        now = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC).replace(tzinfo=None)
        self.expiry = now + datetime.timedelta(seconds=self.lifetime_s)


@pytest.fixture
def make(clock: FastClock) -> Iterator[Callable[..., Token]]:
    stop = threading.Event()
    yield lambda credentials: Token(credentials, object, stop, clock=clock)
    stop.set()


def test_a_token_without_expiry_is_not_renewed(make: Callable[..., Token]):
    assert make(Credentials("fixed")).header(0) == "Bearer fixed"


def test_the_first_token_is_waited_for(make: Callable[..., Token], clock: FastClock):
    assert make(Fake(3600, clock)).header(SOON_S) == "Bearer token-1"


def test_the_old_one_is_used_while_there_is_no_new_one(
    make: Callable[..., Token], clock: FastClock
):
    source = Fake(3600, clock)
    token = make(source)
    token.header(SOON_S)
    source.down = True
    clock.suspended_s += 3600 - credentials.AHEAD_S + 1
    clock.sleep(3 * credentials.AGAIN_S)
    assert token.header(0) == "Bearer token-1"


def test_without_a_token_the_error_says_why_and_a_later_one_is_used(
    make: Callable[..., Token], clock: FastClock
):
    source = Fake(3600, clock)
    source.down = True
    token = make(source)
    with pytest.raises(CloudError, match="no access token: metadata server: timed out") as raised:
        token.header(SOON_S)
    assert raised.value.reason == "noToken"
    source.down = False
    until(lambda: source.refreshed == 1)
    assert token.header(SOON_S) == "Bearer token-1"


def test_one_that_google_refuses_is_replaced(make: Callable[..., Token], clock: FastClock):
    source = Fake(3600, clock)
    token = make(source)
    token.header(SOON_S)
    token.refused()
    until(lambda: token.header(0) == "Bearer token-2")


@pytest.mark.parametrize("step_s", [-7200, -600, -20, 0, 20, 600, 7200])
def test_it_is_renewed_before_it_expires_whatever_the_system_clock_is_set_to(
    make: Callable[..., Token], clock: FastClock, step_s: float
):
    source = Fake(3600, clock)
    token = make(source)
    token.header(SOON_S)
    clock.set_s = step_s
    clock.suspended_s += 3600 - credentials.AHEAD_S - 100
    clock.sleep(3 * credentials.AGAIN_S)
    assert token.header(0) == "Bearer token-1"
    clock.suspended_s += 100
    until(lambda: token.header(0) == "Bearer token-2", 1)


def test_after_a_machine_was_suspended_a_new_one_comes_soon(
    make: Callable[..., Token], clock: FastClock
):
    source = Fake(3600, clock)
    token = make(source)
    token.header(SOON_S)
    clock.suspended_s += 7200
    with pytest.raises(CloudError, match="no access token"):
        token.header(0)
    until(lambda: source.refreshed == 2, 1)
    assert token.header(0) == "Bearer token-2"


def test_after_an_outage_of_its_endpoint_a_new_one_comes_soon(
    make: Callable[..., Token], clock: FastClock
):
    source = Fake(3600, clock)
    token = make(source)
    token.header(SOON_S)
    source.down = True
    clock.suspended_s += 7200
    clock.sleep(3 * credentials.AGAIN_S)
    with pytest.raises(CloudError, match="no access token"):
        token.header(0)
    source.down = False
    until(lambda: source.refreshed == 2, 1)
    assert token.header(0) == "Bearer token-2"


def test_calls_are_sent_within_ten_seconds_when_there_is_a_token_again():
    longest_s = max(api_client.pause_s(tried) for tried in range(100))
    assert longest_s + credentials.AGAIN_S <= 10
