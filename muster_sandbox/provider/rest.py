"""Google's REST interfaces as the provider uses them: addresses, token, retries, operations.

Settings have the real provider's names: GOOGLE_<PRODUCT>_CUSTOM_ENDPOINT in the environment, or
`gcp:<product>CustomEndpoint` in the stack's configuration, which wins.
"""

import collections
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import requests
from google.auth.transport.requests import Request
from google.oauth2.service_account import Credentials

from muster_sandbox.provider.batches import Batches

ENDPOINTS = {
    "compute": "https://compute.googleapis.com/compute/beta/",
    "storage": "https://storage.googleapis.com/storage/v1/",
    "secret_manager": "https://secretmanager.googleapis.com/v1/",
    "iam_beta": "https://iam.googleapis.com/v1/",
    "resource_manager": "https://cloudresourcemanager.googleapis.com/v1/",
    "cloud_billing": "https://cloudbilling.googleapis.com/v1/",
    "iap": "https://iap.googleapis.com/v1/",
}
"""Product, as in the environment variable -> Google's own address."""

RETRIED = {429, 500, 502, 503}
WAITS = (0.5, 1, 1.5, 2.5, 4, 6.5, 10)
"""Seconds between tries; the last one repeats."""

GIVE_UP_AFTER = 20 * 60
"""Seconds of retries for one call, and of polling for one operation."""


class CloudError(Exception):
    """The cloud refused; the engine shows the cloud's own message."""


class CancelledError(CloudError):
    """The engine has cancelled all work."""


class HttpError(CloudError):
    """An HTTP answer with an error status."""

    def __init__(self, status: int, message: str, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(
            f"googleapi: Error {status}: {message}" + (f", {reason}" if reason else "")
        )


@dataclass
class Rest:
    """A connection to the cloud with one project's settings."""

    config: Mapping[str, str]
    """The stack's `gcp:` settings, without the prefix."""

    environment: Mapping[str, str]
    cancelled: threading.Event = field(default_factory=threading.Event)
    transport: httpx.BaseTransport | None = None

    def __post_init__(self) -> None:
        self._token = ""
        self._token_lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self.batches = Batches(batch_delay(self.config.get("batching")))
        self.client = httpx.Client(
            timeout=seconds(self.config.get("requestTimeout", "120s")), transport=self.transport
        )

    def close(self) -> None:
        """Close the connections to the cloud."""
        self.client.close()

    @property
    def poll_interval(self) -> float:
        """Seconds between two polls of an operation."""
        return seconds(self.config.get("pollInterval", "10s"))

    def setting(self, name: str, *variables: str) -> str | None:
        """Return a setting of the stack, else the first environment variable that is set."""
        if name in self.config:
            return self.config[name]
        return next(
            (self.environment[item] for item in variables if item in self.environment), None
        )

    @property
    def project(self) -> str:
        """The project for resources that name none."""
        return self._needed(self.setting("project", "GOOGLE_PROJECT", "CLOUDSDK_CORE_PROJECT"))

    @property
    def region(self) -> str:
        """The region for resources that name none."""
        return self._needed(self.optional_region)

    @property
    def optional_region(self) -> str | None:
        """The region, or None if none is set."""
        return self.setting("region", "GOOGLE_REGION", "CLOUDSDK_COMPUTE_REGION")

    @property
    def zone(self) -> str:
        """The zone for resources that name none."""
        return self._needed(self.setting("zone", "GOOGLE_ZONE", "CLOUDSDK_COMPUTE_ZONE"))

    def _needed(self, value: str | None) -> str:
        if value is None:
            raise CloudError("project, region or zone: required field is not set")
        return value

    def base(self, product: str) -> str:
        """Return the base URL of a product's paths."""
        first, *more = product.split("_")
        key = f"{first}{''.join(map(str.capitalize, more))}CustomEndpoint"
        variable = f"GOOGLE_{product.upper()}_CUSTOM_ENDPOINT"
        return self.setting(key, variable) or ENDPOINTS[product]

    def token(self) -> str:
        """Return the access token.

        Raises:
            CloudError: no credentials are set.

        """
        given = self.setting("accessToken", "GOOGLE_OAUTH_ACCESS_TOKEN")
        if given:
            return given
        account = self.setting("credentials", "GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON")
        if not account:
            raise CloudError(
                "Attempted to load application default credentials since neither `credentials` nor"
                " `access_token` was set in the provider block.  No credentials loaded."
            )
        with self._token_lock:
            if not self._token:
                self._token = account_token(account)
            return self._token

    def call(
        self,
        method: str,
        product: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call a method and return its answer, retrying as the provider does.

        Args:
            method: of HTTP.
            product: a key of ENDPOINTS.
            path: relative to the product's base URL; a leading slash means the host's root.
            query: parameters besides `alt`.
            body: sent as JSON.
            content: sent as it is, chunked.
            headers: besides the one with the token.

        Raises:
            HttpError: the answer is an error that a retry wouldn't change.
            CancelledError: the engine asked to stop.

        """
        base = httpx.URL(self.base(product))
        url = base.join(path) if path.startswith("/") else httpx.URL(f"{base}{path}")
        headers = {"Authorization": f"Bearer {self.token()}", **(headers or {})}
        start, tries = time.monotonic(), 0
        while True:
            answer: httpx.Response | None = None
            try:
                answer = self.client.request(
                    method,
                    url,
                    params={"alt": "json", **(query or {})},
                    headers=headers,
                    json=body,
                    # An iterator is sent in chunks, without a Content-Length.
                    content=None if content is None else iter([content]),
                )
                problem: CloudError = error_of(answer)
            except httpx.TransportError as error:
                problem = CloudError(f"{method} {url}: {error}")
            if answer is not None and answer.is_success:
                return answer.json() if answer.content else {}
            if answer is not None and answer.status_code not in RETRIED:
                raise problem
            if time.monotonic() - start > GIVE_UP_AFTER:
                raise problem
            self.pause(WAITS[min(tries, len(WAITS) - 1)])
            tries += 1

    def lock(self, name: str) -> threading.Lock:
        """Return the lock of an object that several resources read, change and write back."""
        return self._locks[name]

    def pause(self, duration: float) -> None:
        """Wait some seconds.

        Raises:
            CancelledError: the engine cancelled meanwhile.

        """
        if self.cancelled.wait(duration):
            raise CancelledError("unable to finish polling, context has been cancelled")

    def exists(self, method: str, product: str, path: str, **options: Any) -> dict[str, Any] | None:
        """Call a method; return None where it answers 404."""
        try:
            return self.call(method, product, path, **options)
        except HttpError as error:
            if error.status != 404:
                raise
            return None

    def finish(self, operation: dict[str, Any], project: str, activity: str) -> dict[str, Any]:
        """Wait for a Compute Engine operation and return it as it ended.

        Raises:
            CloudError: it ended with an error.
            CancelledError: the engine asked to stop.

        """
        if "zone" in operation:
            scope = f"zones/{operation['zone'].rsplit('/', 1)[-1]}"
        elif "region" in operation:
            scope = f"regions/{operation['region'].rsplit('/', 1)[-1]}"
        else:
            scope = "global"
        path = f"projects/{project}/{scope}/operations/{operation['name']}"
        start = time.monotonic()
        while operation["status"] != "DONE":
            operation = self.call("GET", "compute", path)
            if operation["status"] == "DONE":
                break
            if time.monotonic() - start > GIVE_UP_AFTER:
                raise CloudError(
                    f"Error waiting for {activity}: timeout while waiting for state DONE"
                )
            self.pause(self.poll_interval)
        errors = operation.get("error", {}).get("errors", [])
        if errors:
            messages = "\n".join(f"{item.get('message', '')} ({item['code']})" for item in errors)
            raise CloudError(f"Error waiting for {activity}: {messages}")
        return operation

    def wait_until(
        self, look: Callable[[], dict[str, Any]], done: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Poll until it is done; the pauses grow from 1 s to the poll interval.

        Raises:
            CloudError: GIVE_UP_AFTER has passed.

        """
        start, pause = time.monotonic(), 1.0
        while not done(answer := look()):
            if time.monotonic() - start > GIVE_UP_AFTER:
                raise CloudError("timeout while waiting for the resource's state")
            self.pause(min(pause, self.poll_interval))
            pause *= 2
        return answer


def error_of(answer: httpx.Response) -> HttpError:
    """Return the provider's sentence for Google's error in an answer."""
    try:
        error = answer.json()["error"]
        reason = (error.get("errors") or [{}])[0].get("reason", "")
        return HttpError(answer.status_code, error.get("message", ""), reason)
    except (ValueError, KeyError, TypeError, AttributeError):
        return HttpError(
            answer.status_code, f"got HTTP response with body: {answer.text[:500]}", ""
        )


def seconds(duration: str) -> float:
    """Return Go's notation of a duration as seconds: `1s`, `0.1s`, `500ms`, `2m`.

    Raises:
        CloudError: the text isn't a duration.

    """
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        digits = duration.removesuffix(unit)
        if digits != duration and digits.replace(".", "", 1).isdigit():
            return float(digits) * factor
    raise CloudError(f"{duration!r} is no duration such as 1s")


def batch_delay(setting: str | None) -> float:
    """Return the seconds of `gcp:batching`, as `{"sendAfter": "0.1s"}`; 3 s by default."""
    return seconds(json.loads(setting or "{}").get("sendAfter", "3s"))


def account_token(credentials: str) -> str:
    """Get a token for a service account's key, given as JSON or as a file's path."""
    text = credentials if credentials.lstrip().startswith("{") else Path(credentials).read_text()
    account = Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
        json.loads(text), scopes=["https://www.googleapis.com/auth/cloud-platform"]
    )
    with requests.Session() as session:
        account.refresh(Request(session))
    return str(account.token)
