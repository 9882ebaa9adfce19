"""How the stand-in calls: addresses, token, retries, operations, errors."""

import base64
import threading
from collections.abc import Callable
from contextlib import closing

import httpx
import pytest

from muster_sandbox.engine.home import cloud_environment
from muster_sandbox.fakecloud.server import Server
from muster_sandbox.provider.rest import CancelledError, CloudError, HttpError, Rest, seconds

Handler = Callable[[httpx.Request], httpx.Response]
TOKEN = {"GOOGLE_OAUTH_ACCESS_TOKEN": "t"}


def connection(
    handler: Handler, config: dict[str, str] | None = None, environment: dict[str, str] = TOKEN
) -> Rest:
    """A connection whose server is a function, and which doesn't wait."""
    rest = Rest(config or {}, environment, transport=httpx.MockTransport(handler))
    rest.pause = lambda _: None
    return rest


def failing(*statuses: int) -> tuple[Handler, list[str]]:
    """A handler that answers these statuses, then 200; and the URLs that were called."""
    answers, asked = list(statuses), []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        status = answers.pop(0) if answers else 200
        error = {"code": status, "message": "so it is", "errors": [{"reason": "because"}]}
        return httpx.Response(status, json={"error": error} if status != 200 else {"name": "n"})

    return handle, asked


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_what_may_pass_is_tried_again(status: int):
    handler, asked = failing(status, status)
    assert connection(handler).call("GET", "compute", "projects/p") == {"name": "n"}
    assert len(asked) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 501, 504])
def test_what_will_not_change_is_not(status: int):
    handler, asked = failing(status)
    with pytest.raises(HttpError, match=f"Error {status}: so it is, because") as refused:
        connection(handler).call("GET", "compute", "projects/p")
    assert (refused.value.status, refused.value.reason) == (status, "because")
    assert len(asked) == 1


def test_a_lost_connection_is_tried_again():
    lost = [httpx.ConnectError("reset"), httpx.ReadTimeout("slow")]

    def handle(request: httpx.Request) -> httpx.Response:
        if lost:
            raise lost.pop(0)
        return httpx.Response(204)

    assert connection(handle).call("DELETE", "storage", "b/x") == {}


def test_addresses_come_from_the_stack_then_the_environment_then_google():
    handler, asked = failing()
    environment = TOKEN | {
        "GOOGLE_COMPUTE_CUSTOM_ENDPOINT": "http://one/compute/beta/",
        "GOOGLE_SECRET_MANAGER_CUSTOM_ENDPOINT": "http://one/sm/v1/",
        "GOOGLE_STORAGE_CUSTOM_ENDPOINT": "http://one/storage/v1/",
    }
    rest = connection(handler, {"computeCustomEndpoint": "http://two/c/"}, environment)
    rest.call("GET", "compute", "projects/p")
    rest.call("GET", "secret_manager", "projects/p", query={"a": "b"})
    rest.call("POST", "storage", "/upload/storage/v1/b/x/o", content=b"data")
    rest.call("GET", "iam_beta", "projects/p")
    assert asked == [
        "http://two/c/projects/p?alt=json",
        "http://one/sm/v1/projects/p?alt=json&a=b",
        "http://one/upload/storage/v1/b/x/o?alt=json",
        "https://iam.googleapis.com/v1/projects/p?alt=json",
    ]


def test_without_credentials_nothing_is_called():
    handler, asked = failing()
    with pytest.raises(CloudError, match="No credentials loaded"):
        connection(handler, environment={}).call("GET", "compute", "projects/p")
    assert asked == []


def test_a_service_accounts_key_is_exchanged_for_a_token(fakecloud: Server):
    environment = cloud_environment(fakecloud.url, "demo-project")
    with closing(Rest({}, environment)) as owner:
        accounts = "projects/demo-project/serviceAccounts"
        body = {"accountId": "lab-admin", "serviceAccount": {}}
        name = owner.call("POST", "iam_beta", accounts, body=body)["name"]
        key = owner.call("POST", "iam_beta", f"{name}/keys", body={})
    credentials = base64.b64decode(key["privateKeyData"]).decode()
    del environment["GOOGLE_OAUTH_ACCESS_TOKEN"]
    environment["GOOGLE_CREDENTIALS"] = credentials
    with closing(Rest({}, environment)) as account, pytest.raises(HttpError, match="Error 403"):
        account.call("GET", "compute", "projects/demo-project/global/networks")


def operations(*answers: dict) -> tuple[Rest, list[str], list[float]]:
    """A connection that answers operations, the URLs that were called, and the pauses between."""
    waiting, asked, pauses = list(answers), [], []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path.split("/compute/beta/")[1])
        return httpx.Response(200, json=waiting.pop(0))

    rest = connection(handle, {"pollInterval": "1s"})
    rest.pause = pauses.append
    return rest, asked, pauses


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ({"zone": "https://x/zones/z"}, "projects/p/zones/z/operations/o"),
        ({"region": "https://x/regions/r"}, "projects/p/regions/r/operations/o"),
        ({}, "projects/p/global/operations/o"),
    ],
)
def test_an_operation_is_looked_at_where_it_is_at_once_and_then_at_intervals(place, path):
    running, done = ({"name": "o", "status": word, **place} for word in ("RUNNING", "DONE"))
    rest, asked, pauses = operations(running, done)
    assert rest.finish(running, "p", "creating") == done
    assert asked == [path, path]
    assert pauses == [1.0]


def test_an_operation_that_is_done_is_not_looked_at():
    rest, asked, _ = operations()
    rest.finish({"name": "o", "status": "DONE"}, "p", "creating")
    assert asked == []


def test_the_error_of_an_operation_is_told_in_its_words():
    error = {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "no room"}]}
    rest, *_ = operations()
    with pytest.raises(CloudError, match=r"creating: no room \(ZONE_RESOURCE_POOL_EXHAUSTED\)"):
        rest.finish({"name": "o", "status": "DONE", "error": error}, "p", "creating")


def test_a_cancelled_engine_ends_the_waiting():
    cancelled = threading.Event()
    cancelled.set()
    running = {"name": "o", "status": "RUNNING"}
    handler = httpx.MockTransport(lambda _: httpx.Response(200, json=running))
    rest = Rest({}, TOKEN, cancelled, handler)
    with pytest.raises(CancelledError, match="context has been cancelled"):
        rest.finish(running, "p", "creating")


def test_durations_are_gos():
    assert [seconds(text) for text in ("1s", "0.1s", "500ms", "2m")] == [1, 0.1, 0.5, 120]
    with pytest.raises(CloudError, match="'soon' is no duration"):
        seconds("soon")
