"""The client of Google's APIs when servers or credentials are out of order."""

import time
from collections.abc import Iterator

import google.auth
import google.auth.exceptions
import google.oauth2.credentials
import pytest
from broken_servers import silent_server, told_server
from google.auth.compute_engine import _metadata

from muster.gcp import api
from muster.gcp.api import CloudError, Compute

GRANTED = '{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}'


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Compute Engine that never answers."""
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "owner")
    with silent_server() as address:
        monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"http://{address}/compute/v1/")
        yield


def seconds(begin: float) -> float:
    return time.monotonic() - begin


@pytest.mark.usefixtures("silent")
def test_a_server_that_never_answers_ends_a_call_in_the_callers_time():
    begin = time.monotonic()
    with pytest.raises(CloudError, match=r"no answer from http://127\.0\.0\.1.* after 1 s") as got:
        Compute("demo-project").by(begin + 1).get("zones")
    assert got.value.reason == "unreachable"
    assert 0.9 < seconds(begin) < 3


@pytest.mark.usefixtures("silent")
def test_a_call_has_a_bound_for_all_its_tries_without_being_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "CALL_S", 1.5)
    monkeypatch.setattr(api, "SILENCE_S", 0.2)
    begin = time.monotonic()
    with pytest.raises(CloudError, match="no answer"):
        Compute("demo-project").get("zones")
    assert seconds(begin) < 3


@pytest.mark.usefixtures("silent")
def test_a_wait_keeps_its_time_when_the_server_falls_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "LAST_LOOK_S", 0.2)
    operation = {"name": "operation-1", "status": "RUNNING", "zone": "zones/europe-west4-a"}
    begin = time.monotonic()
    with pytest.raises(CloudError):
        Compute("demo-project").wait(operation, 1)
    assert seconds(begin) < 4


@pytest.mark.usefixtures("silent")
def test_who_has_no_time_left_asks_nothing():
    begin = time.monotonic()
    late = Compute("demo-project").by(begin - 1).by(begin + 60)
    with pytest.raises(CloudError, match="no time is left"):
        late.get("zones")
    assert seconds(begin) < 1


def test_a_busy_server_is_given_the_time_that_it_asks_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "owner")
    begin = time.monotonic()
    with told_server([(503, "{}"), (200, '{"name": "p"}')], retry_after_s=1) as (where, got):
        monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"http://{where}/")
        assert Compute("p").get("") == {"name": "p"}
    assert len(got) == 2
    # Unasked it tries at once.
    assert seconds(begin) >= 1


def test_a_proxys_page_with_status_200_is_no_crash(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "owner")
    with told_server([(200, "<html>log in</html>")]) as (where, _):
        monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"http://{where}/")
        with pytest.raises(CloudError, match="is no JSON"):
            Compute("p").get("")


@pytest.fixture
def vm(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is a VM of Google's, without another token."""
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)


@pytest.mark.usefixtures("vm")
def test_a_metadata_server_that_hiccups_costs_a_moment(monkeypatch: pytest.MonkeyPatch):
    info = '{"email": "c@p.iam.gserviceaccount.com", "scopes": [], "aliases": []}'
    with (
        told_server([(502, ""), (502, ""), (200, info), (200, GRANTED)]) as (metadata, asked),
        told_server([(200, '{"name": "p"}')]) as (compute, _),
    ):
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", metadata)
        monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"http://{compute}/")
        assert Compute("p", api.connect(on_vm=True)).get("") == {"name": "p"}
    assert len(asked) > 2


@pytest.mark.usefixtures("vm")
@pytest.mark.parametrize("answer", [(502, "sorry"), (404, "no service account")])
def test_a_vm_without_a_token_is_not_sent_to_gcloud(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str]
):
    monkeypatch.setattr(api, "CALL_S", 1.0)
    begin = time.monotonic()
    with told_server([answer]) as (metadata, _):
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", metadata)
        with pytest.raises(CloudError, match="gives this VM no token") as got:
            Compute("p", api.connect(on_vm=True)).get("")
    assert answer[1] in str(got.value)
    assert "gcloud" not in str(got.value)
    assert "\n" not in str(got.value)
    assert got.value.reason == "unreachable"
    assert seconds(begin) < 5


def user(token_server: str) -> google.oauth2.credentials.Credentials:
    """Somebody's application default credentials, whose token is to be fetched."""
    return google.oauth2.credentials.Credentials(
        None,
        refresh_token="r",  # noqa: S106
        token_uri=f"http://{token_server}/token",
        client_id="c",
        client_secret="s",  # noqa: S106
    )


def test_a_token_server_out_of_reach_is_no_lack_of_credentials(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)
    with silent_server() as address:
        monkeypatch.setattr(google.auth, "default", lambda **_: (user(address), None))
        begin = time.monotonic()
        with pytest.raises(CloudError, match="no token for Google Cloud") as got:
            Compute("p").by(begin + 1).get("")
    assert "gcloud" not in str(got.value)
    assert got.value.reason == "unreachable"
    assert seconds(begin) < 4


def test_credentials_that_were_withdrawn_are_named_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)
    withdrawn = '{"error": "invalid_grant", "error_description": "Token has been revoked."}'
    with told_server([(400, withdrawn)]) as (address, asked):
        monkeypatch.setattr(google.auth, "default", lambda **_: (user(address), None))
        with pytest.raises(CloudError, match=r"Token has been revoked.*gcloud auth") as got:
            Compute("p").get("")
    assert got.value.reason == "noCredentials"
    assert len(asked) == 1
