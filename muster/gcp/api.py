"""Google's APIs over one HTTP session: credentials, addresses, retries, operations.

Credentials are GOOGLE_OAUTH_ACCESS_TOKEN, else google-auth's application default ones; addresses
are the variables that Google's Pulumi provider reads, GOOGLE_<PRODUCT>_CUSTOM_ENDPOINT, else
Google's own. All tries of a call together have one time limit: CALL_S, or less where its caller's
time ends.
"""

import json
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import google.auth
import google.auth.compute_engine
import google.auth.credentials
import google.auth.exceptions
import requests
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials

# https://cloud.google.com/docs/authentication/application-default-credentials
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ENDPOINTS = {
    "COMPUTE": "https://compute.googleapis.com/compute/v1/",
    "SERVICE_USAGE": "https://serviceusage.googleapis.com/v1/",
}
"""Product as in the variables' names -> its address; a value ends with a slash."""

CALL_S = 90.0
"""Seconds until a call is given up, with all its tries, unless its caller has less time."""
CONNECT_S, SILENCE_S = 10.0, 30.0
"""Seconds to connect, and to wait for the next byte of an answer, until a try fails."""
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before the second and each later try: a busy server has 15 seconds to recover."""
BUSY = (429, 500, 502, 503, 504)
LONGEST_RETRY_AFTER_S = 20
LAST_LOOK_S = 5.0
"""Seconds that a look may still take if it begins just before its caller's time ends."""
PAGE = 500
"""Items of one page; Google's highest."""
POLL_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between looks at an operation; the last one from then on."""

ALREADY_EXISTS, NOT_FOUND = 409, 404


class CloudError(Exception):
    """A call that Google refused, or that got no answer; the text is one sentence.

    `status` is the HTTP status, 0 where there was no answer; `reason` is Google's code
    (`alreadyExists`, `quotaExceeded`, of operations `ZONE_RESOURCE_POOL_EXHAUSTED`).
    """

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


def endpoint(product: str) -> str:
    """The address of a product's API, such as `COMPUTE`; with a slash at its end."""
    return os.environ.get(f"GOOGLE_{product}_CUSTOM_ENDPOINT") or ENDPOINTS[product]


def credentials(*, on_vm: bool = False) -> google.auth.credentials.Credentials:
    """Return what calls are made with.

    `on_vm`: this is a VM, so its own identity is used even if its metadata server doesn't answer
    now; google-auth would take it for a machine outside of Google Cloud then.

    Raises:
        CloudError: there are none.

    """
    token = os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN")
    identity: google.auth.credentials.Credentials
    try:
        if token:
            identity = Credentials(token)  # type: ignore[no-untyped-call]
        elif on_vm:
            identity = google.auth.compute_engine.Credentials()  # type: ignore[no-untyped-call]
        else:
            identity = google.auth.default(scopes=[SCOPE])[0]
    except google.auth.exceptions.GoogleAuthError as error:
        raise CloudError(
            f"no credentials for Google Cloud ({_first(error)}): run `gcloud auth "
            "application-default login`, or set GOOGLE_OAUTH_ACCESS_TOKEN",
            401,
            "noCredentials",
        ) from error
    return identity


def connect(*, on_vm: bool = False) -> requests.Session:
    """Return a session with `credentials`; it may be used for all products.

    Raises:
        CloudError: there are no credentials.

    """
    return AuthorizedSession(credentials(on_vm=on_vm))  # type: ignore[no-untyped-call]


def no_token(session: requests.Session, error: Exception) -> CloudError:
    """The error for credentials that yield no token."""
    said = _first(error)
    if isinstance(getattr(session, "credentials", None), google.auth.compute_engine.Credentials):
        return CloudError(
            f"the metadata server gives this VM no token: {said}; see whether the VM has a service "
            "account, and `systemctl status muster-guard` for who may ask",
            0,
            "unreachable",
        )
    if _may_pass(error):
        return CloudError(
            f"no token for Google Cloud: {said}; see whether this machine reaches "
            "https://oauth2.googleapis.com",
            0,
            "unreachable",
        )
    return CloudError(
        f"Google Cloud no longer accepts these credentials ({said}): run `gcloud auth "
        "application-default login`, or set GOOGLE_OAUTH_ACCESS_TOKEN again",
        401,
        "noCredentials",
    )


def _may_pass(error: Exception) -> bool:
    """Whether the next try may succeed: there was no answer, or the server was busy."""
    if isinstance(error, google.auth.exceptions.GoogleAuthError):
        lost = isinstance(error, google.auth.exceptions.TransportError)
        # A VM's credentials wrap the error of the connection.
        lost = lost or isinstance(error.__cause__, google.auth.exceptions.TransportError)
        return lost or bool(error.retryable)
    return isinstance(
        error,
        requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError,
    )


def _first(error: Exception) -> str:
    """An error of google-auth as one line, without the answer's body, which it holds too."""
    return " ".join(str(error.args[0] if error.args else type(error).__name__).split())


def persist(
    ask: Callable[[tuple[float, float]], requests.Response], until: float
) -> requests.Response:
    """Ask until a server that is not busy answers, or no time is left for another try.

    Args:
        ask: sends the request once; takes what requests calls timeout, in seconds.
        until: when to give up, in seconds of time.monotonic().

    Returns:
        The last answer, whatever its status.

    Raises:
        requests.RequestException: there was none.
        google.auth.exceptions.GoogleAuthError: there is no token for it.

    """
    pauses = iter(PAUSES_S)
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise requests.Timeout("no time is left")
        lost = None
        try:
            answer = ask((min(CONNECT_S, left), min(SILENCE_S, left)))
        except (requests.RequestException, google.auth.exceptions.GoogleAuthError) as error:
            if not _may_pass(error):
                raise
            lost, pause = error, next(pauses, math.inf)
        else:
            if answer.status_code not in BUSY:
                return answer
            pause = max(next(pauses, math.inf), _retry_after_s(answer))
        if time.monotonic() + pause >= until:
            if lost:
                raise lost
            return answer
        time.sleep(pause)


def _retry_after_s(answer: requests.Response) -> float:
    """Seconds that a busy server asks for."""
    said = answer.headers.get("Retry-After", "")
    return min(float(said), LONGEST_RETRY_AFTER_S) if said.isdigit() else 0


def new_request_id() -> str:
    """A requestId: Google executes a call that it gets twice with the same id only once."""
    return str(uuid.uuid4())


@dataclass
class Service:
    """One of Google's APIs; `until` ends all calls, in seconds of time.monotonic()."""

    product: str
    session: requests.Session
    until: float = math.inf

    def call(self, verb: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Send a request to a path below the API's address, and return the answer.

        POSTs are repeated too: an insert that is sent twice is refused as existing, or has a
        requestId. Fetching a token may take google-auth half a minute more.

        Raises:
            CloudError: Google refused it, or there was no answer in time.

        """
        url = endpoint(self.product) + path
        begin = time.monotonic()
        try:
            answer = persist(
                lambda timeout: self.session.request(
                    verb, url, params=query, json=body, timeout=timeout
                ),
                min(begin + CALL_S, self.until),
            )
        except google.auth.exceptions.GoogleAuthError as error:
            raise no_token(self.session, error) from error
        except requests.RequestException as error:
            took = time.monotonic() - begin
            raise CloudError(
                f"no answer from {url} after {took:.0f} s: {error}", 0, "unreachable"
            ) from error
        if not answer.ok:
            raise refused(answer.status_code, answer.content, answer.url)
        try:
            return dict(answer.json()) if answer.content else {}
        except ValueError as error:
            # A proxy's page, not Google's answer.
            raise CloudError(f"the answer from {url} is no JSON: {error}") from error


def refused(status: int, content: bytes, url: str) -> CloudError:
    """An answer with an error as an exception.

    https://cloud.google.com/apis/design/errors; Compute Engine's own form has `errors` with a
    `reason`, that of newer APIs a `status` and details.
    """
    try:
        error = json.loads(content)["error"]
        entries = error.get("errors") or [{}]
        reasons = [detail["reason"] for detail in error.get("details", []) if "reason" in detail]
        reason = entries[0].get("reason") or next(iter(reasons), "") or error.get("status", "")
        return CloudError(error["message"], status, reason)
    except (ValueError, KeyError, TypeError, AttributeError):
        # A proxy's page, not Google's answer.
        return CloudError(f"{status} from {url}", status)


class Compute:
    """Compute Engine in one project; paths are below `projects/P/`, as `zones/Z/instances`."""

    def __init__(
        self, project: str, session: requests.Session | None = None, until: float = math.inf
    ) -> None:
        """`until`: when all its calls end, in seconds of time.monotonic()."""
        self.project = project
        self.service = Service("COMPUTE", session or connect(), until)

    def by(self, until: float) -> "Compute":
        """The same client with an earlier end; `until` is in seconds of time.monotonic()."""
        return Compute(self.project, self.service.session, min(until, self.service.until))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return a resource, or the answer to another question."""
        return self._call("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Make or change something; mostly returns an operation, for `wait`."""
        return self._call("POST", path, body, **query)

    def delete(self, path: str, **query: Any) -> dict[str, Any]:
        """Delete a resource; returns an operation, for `wait`."""
        return self._call("DELETE", path, **query)

    def everywhere(self, collection: str, **query: Any) -> list[dict[str, Any]]:
        """Return the items of a collection in all zones or regions."""
        pages = self._pages(f"aggregated/{collection}", **query)
        return [
            item
            for page in pages
            for place in page.get("items", {}).values()
            for item in place.get(collection, [])
        ]

    def wait(self, operation: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Wait until an operation has ended, and return it.

        Raises:
            CloudError: it failed, or it isn't done in time (reason `timeout`).

        """
        until = time.monotonic() + timeout_s
        bounded = self.by(until + LAST_LOOK_S)
        delays = _delays()
        while operation.get("status") != "DONE":
            if time.monotonic() > until:
                raise CloudError(
                    f"{operation.get('operationType', 'an operation')} of "
                    f"{last(operation.get('targetLink', operation['name']))} has not ended after "
                    f"{timeout_s:.0f} s",
                    0,
                    "timeout",
                )
            time.sleep(next(delays))
            operation = bounded.get(f"{scope_of(operation)}/operations/{operation['name']}")
        errors = (operation.get("error") or {}).get("errors") or []
        if errors:
            raise CloudError(
                errors[0].get("message") or errors[0]["code"],
                operation.get("httpErrorStatusCode", 0),
                errors[0].get("code", ""),
            )
        return operation

    def _call(self, verb: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        # Without a path the project itself is meant.
        where = f"projects/{self.project}/{path}".rstrip("/")
        return self.service.call(verb, where, body, **query)

    def _pages(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        query.setdefault("maxResults", PAGE)
        while True:
            page = self.get(path, **query)
            yield page
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    # Last: below it `list` would mean this method.
    def list(self, path: str, key: str = "items", **query: Any) -> list[dict[str, Any]]:
        """Return all items of a list, whatever the number of its pages."""
        return [item for page in self._pages(path, **query) for item in page.get(key, [])]


def scope_of(operation: dict[str, Any]) -> str:
    """The scope of an operation: `zones/Z`, `regions/R` or `global`."""
    for collection in ("zone", "region"):
        if collection in operation:
            return f"{collection}s/{last(operation[collection])}"
    return "global"


def _delays() -> Iterator[float]:
    yield from POLL_S
    while True:
        yield POLL_S[-1]


def last(link: str) -> str:
    """The last part of a link: a resource's name."""
    return link.rpartition("/")[2]


def exists(look: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """What a call returns, or None where Google says that it isn't there."""
    try:
        return look()
    except CloudError as error:
        if error.status == NOT_FOUND:
            return None
        raise
