"""What a call says that gets no answer."""

import socket
import threading
from itertools import chain, repeat
from unittest.mock import Mock

import pytest
from google.oauth2.credentials import Credentials

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute.api_client import Limits, Transport
from muster.autoscaler.compute.credentials import Token
from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.messages import Inbox
from muster.autoscaler.readers import Failures
from muster.gcp.api import CloudError


def test_a_server_that_does_not_answer_is_said_once(caplog: pytest.LogCaptureFixture):
    """Each reading waits for another time, as each has its own deadline."""
    clock, stop, inbox = Clock(), threading.Event(), Inbox()
    failures = Failures(inbox, clock)
    token = Token(Credentials("none"), lambda: None, stop, clock=clock)
    with socket.create_server(("127.0.0.1", 0)) as server:
        base = f"http://127.0.0.1:{server.getsockname()[1]}/compute/v1/"
        transport = Transport(base, token, Limits(try_s=1), stop, clock=clock)

        def read(seconds: float) -> None:
            until = clock.monotonic() + seconds
            transport.call("regions.get", "GET", "regions/r", until=until, groups=(Group.READ,))

        for seconds in (0.2, 0.3, 0.4):
            assert failures.tried("the quotas", lambda seconds=seconds: read(seconds)) is None
    assert caplog.text.count("the quotas can't be read") == 1
    assert f"no answer from {base}: it took too long" in caplog.text
    assert inbox.qsize() == 1


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (CloudError("slow down", 403, "rateLimitExceeded"), "unreachable"),
        (CloudError("no access token", 0, "noToken"), "unreachable"),
        # It is definite: with this requestId Google has done nothing before.
        (CloudError("not allowed", 403, "forbidden"), "forbidden"),
    ],
)
def test_a_call_of_which_one_try_had_no_answer_may_have_been_done(
    monkeypatch: pytest.MonkeyPatch, later: CloudError, says: str
) -> None:
    clock, stop = Clock(), threading.Event()
    token = Token(Credentials("none"), lambda: None, stop, clock=clock)
    transport = Transport("http://127.0.0.1:1/", token, Limits(), stop, clock=clock)
    tries = Mock(side_effect=chain([CloudError("no answer", 0, "unreachable")], repeat(later)))
    monkeypatch.setattr(transport, "_once", tries)
    until = clock.monotonic() + 2
    with pytest.raises(CloudError) as error:
        transport.call("m", "POST", "p", until=until, groups=(Group.BULK,))
    assert error.value.reason == says
    assert tries.call_count > 1
