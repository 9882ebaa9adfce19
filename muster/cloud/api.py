"""Google's APIs over one HTTP session: credentials, addresses, retries, operations.

Credentials are GOOGLE_OAUTH_ACCESS_TOKEN, else google-auth's application default ones; addresses
are the variables that Google's Pulumi provider reads, GOOGLE_<PRODUCT>_CUSTOM_ENDPOINT, else
Google's own. What a lost answer or a busy server costs is bounded by `RETRIES`.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import google.auth
import google.auth.exceptions
import requests
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

# https://cloud.google.com/docs/authentication/application-default-credentials
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ENDPOINTS = {
    "COMPUTE": "https://compute.googleapis.com/compute/v1/",
    "SERVICE_USAGE": "https://serviceusage.googleapis.com/v1/",
}
"""Product as in the variables' names -> its address; a value ends with a slash."""

# Waits of 0, 1, 2, 4 and 8 s: a busy server has a quarter of a minute to recover.
RETRIES = Retry(
    total=5,
    backoff_factor=0.5,
    backoff_max=8,
    retry_after_max=20,
    status_forcelist=(429, 500, 502, 503, 504),
    # POSTs too: an insert that is sent twice is refused as existing, or has a requestId.
    allowed_methods=None,
    raise_on_status=False,
)
TIMEOUT_S = (10, 60)
"""Seconds to connect, and without a byte of an answer."""
PAGE = 500
"""Items of one page; Google's highest."""
POLL_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between looks at an operation; the last one from then on."""

ALREADY_EXISTS, NOT_FOUND = 409, 404


class CloudError(Exception):
    """A call that Google refused, or that didn't get there; the text is one sentence.

    `status` is the HTTP status, 0 where there was no answer; `reason` is Google's word for it
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


def connect() -> requests.Session:
    """Return a session with credentials; it may be used for all products.

    Raises:
        CloudError: there are no credentials.

    """
    token = os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN")
    try:
        credentials = (
            Credentials(token)  # type: ignore[no-untyped-call]
            if token
            else google.auth.default(scopes=[SCOPE])[0]
        )
    except google.auth.exceptions.GoogleAuthError as error:
        raise no_credentials() from error
    session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=RETRIES))
    return session


def no_credentials() -> CloudError:
    """What somebody without credentials is told."""
    return CloudError(
        "no credentials for Google Cloud: run `gcloud auth application-default login`, or set "
        "GOOGLE_OAUTH_ACCESS_TOKEN",
        401,
        "noCredentials",
    )


def new_request_id() -> str:
    """A requestId: Google does a call that it gets twice with one and the same id only once."""
    return str(uuid.uuid4())


@dataclass
class Service:
    """One of Google's APIs."""

    product: str
    session: requests.Session

    def call(self, verb: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Send a request to a path below the API's address, and return the answer.

        Raises:
            CloudError: it was refused, or there was no answer.

        """
        url = endpoint(self.product) + path
        try:
            answer = self.session.request(verb, url, params=query, json=body, timeout=TIMEOUT_S)
        except google.auth.exceptions.GoogleAuthError as error:
            raise no_credentials() from error
        except requests.RequestException as error:
            raise CloudError(f"no answer from {url}: {error}", 0, "unreachable") from error
        if not answer.ok:
            raise refused(answer)
        return dict(answer.json()) if answer.content else {}


def refused(answer: requests.Response) -> CloudError:
    """An answer with an error as an exception.

    https://cloud.google.com/apis/design/errors; Compute Engine's own form has `errors` with a
    `reason`, that of newer APIs a `status` and details.
    """
    try:
        error = answer.json()["error"]
        entries = error.get("errors") or [{}]
        details = [each.get("reason") for each in error.get("details", []) if "reason" in each]
        reason = entries[0].get("reason") or next(iter(details), "") or error.get("status", "")
        return CloudError(error["message"], answer.status_code, reason)
    except (ValueError, KeyError, TypeError, AttributeError):
        # A proxy's page, not Google's answer.
        return CloudError(f"{answer.status_code} from {answer.url}", answer.status_code)


class Compute:
    """Compute Engine in one project; paths are below `projects/P/`, as `zones/Z/instances`."""

    def __init__(self, project: str, session: requests.Session | None = None) -> None:
        self.project = project
        self.service = Service("COMPUTE", session or connect())

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
            operation = self.get(f"{_place(operation)}/operations/{operation['name']}")
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

    # Last: below it the word would mean this method.
    def list(self, path: str, key: str = "items", **query: Any) -> list[dict[str, Any]]:
        """Return all items of a list, whatever the number of its pages."""
        return [item for page in self._pages(path, **query) for item in page.get(key, [])]


def _place(operation: dict[str, Any]) -> str:
    """Where an operation is found: `zones/Z`, `regions/R` or `global`."""
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
