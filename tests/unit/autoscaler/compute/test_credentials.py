"""A call gets an access token when it needs it, or an error that says why there is none."""

import datetime
import threading
import time
from collections.abc import Callable, Iterator

import google.auth.credentials
import pytest
from driverkit import until
from google.auth.exceptions import TransportError
from google.oauth2.credentials import Credentials

from muster.autoscaler.compute import credentials
from muster.autoscaler.compute.credentials import Token
from muster.gcp.api import CloudError


class Fake(google.auth.credentials.Credentials):
    """Credentials whose tokens last `lifetime_s`; `down` = the endpoint doesn't answer."""

    def __init__(self, lifetime_s: float) -> None:
        super().__init__()
        self.lifetime_s = lifetime_s
        self.down = False
        self.refreshed = 0

    def refresh(self, request: object) -> None:  # noqa: ARG002 (google-auth's)
        if self.down:
            raise TransportError("metadata server: timed out")
        self.refreshed += 1
        self.token = f"token-{self.refreshed}"
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        self.expiry = now + datetime.timedelta(seconds=self.lifetime_s)


class Clock:
    """Seconds since the boot, as a test wants them."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Token]]:
    monkeypatch.setattr(credentials, "AGAIN_S", 0.05)
    stop = threading.Event()
    yield lambda credentials, *clock: Token(credentials, object, stop, *clock)
    stop.set()


def test_a_token_without_expiry_is_not_renewed(make: Callable[..., Token]):
    assert make(Credentials("fixed")).header(0) == "Bearer fixed"


def test_the_first_token_is_waited_for(make: Callable[..., Token]):
    assert make(Fake(3600)).header(5) == "Bearer token-1"


def test_it_is_renewed_before_it_expires(
    make: Callable[..., Token], monkeypatch: pytest.MonkeyPatch
):
    source = Fake(credentials.AHEAD_S + 0.2)
    token = make(source)
    assert token.header(5) == "Bearer token-1"
    until(lambda: token.header(0) == "Bearer token-2")


def test_the_old_one_is_used_while_there_is_no_new_one(make: Callable[..., Token]):
    source = Fake(credentials.AHEAD_S + 0.1)
    token = make(source)
    token.header(5)
    source.down = True
    time.sleep(0.3)
    assert token.header(0) == "Bearer token-1"


def test_without_a_token_the_error_says_why_and_a_later_one_is_used(make: Callable[..., Token]):
    source = Fake(3600)
    source.down = True
    token = make(source)
    with pytest.raises(CloudError, match="no access token: metadata server: timed out") as raised:
        token.header(5)
    assert raised.value.reason == "noToken"
    source.down = False
    until(lambda: source.refreshed == 1)
    assert token.header(5) == "Bearer token-1"


def test_one_that_google_refuses_is_replaced(make: Callable[..., Token]):
    source = Fake(3600)
    token = make(source)
    token.header(5)
    token.refused()
    until(lambda: token.header(0) == "Bearer token-2")


@pytest.mark.parametrize("step_s", [-7200, -600, -20, 20, 600, 7200])
def test_a_step_of_the_system_clock_does_not_change_how_long_it_lasts(
    make: Callable[..., Token], step_s: float
):
    clock, source = Clock(), Fake(3600)
    token = make(source, clock)
    token.header(5)
    # As if the clock had been set: google-auth's expiry is a time by that clock.
    source.expiry -= datetime.timedelta(seconds=step_s)
    clock.now_s += 3600 - credentials.AHEAD_S - 1
    time.sleep(3 * credentials.AGAIN_S)
    assert token.header(0) == "Bearer token-1"
    clock.now_s += 2
    until(lambda: token.header(0) == "Bearer token-2", 1)


def test_after_a_machine_was_suspended_a_new_one_comes_soon(make: Callable[..., Token]):
    clock, source = Clock(), Fake(3600)
    token = make(source, clock)
    token.header(5)
    clock.now_s += 7200
    with pytest.raises(CloudError, match="no access token"):
        token.header(0)
    until(lambda: source.refreshed == 2, 1)
    assert token.header(0) == "Bearer token-2"


def test_after_an_outage_of_its_endpoint_a_new_one_comes_soon(make: Callable[..., Token]):
    clock, source = Clock(), Fake(3600)
    token = make(source, clock)
    token.header(5)
    source.down = True
    clock.now_s += 7200
    time.sleep(3 * credentials.AGAIN_S)
    with pytest.raises(CloudError, match="no access token"):
        token.header(0)
    source.down = False
    until(lambda: source.refreshed == 2, 1)
    assert token.header(0) == "Bearer token-2"
