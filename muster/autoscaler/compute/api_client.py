"""Compute Engine's API over kept-alive connections: rate limits, deadlines, retries, counters.

A call that changes something has a requestId, so it can be sent again.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import http_batch
from muster.autoscaler.compute.credentials import Token
from muster.autoscaler.compute.errors import of_call
from muster.autoscaler.compute.rate_limiter import Bucket, Group, TooLateError
from muster.autoscaler.compute.refusals import Refusals
from muster.autoscaler.compute.server_time import ServerTime
from muster.autoscaler.reconcile.retry_policy import is_outcome_unknown
from muster.gcp.api import NOT_FOUND, CloudError, refused

CONNECTIONS = 96
CONNECT_S = 5.0
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.25, 8.0

BAD_REQUEST, UNAUTHORIZED, TOO_MANY, SERVER_ERROR, NOT_IMPLEMENTED = 400, 401, 429, 500, 501
# https://cloud.google.com/compute/api-quota
RATE_LIMIT = {"rateLimitExceeded", "userRateLimitExceeded"}
# A 503 that is not the server's failure: the zone has no capacity.
# https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation
NO_ROOM = "insufficientCapacity"


@dataclass(frozen=True)
class Limits:
    """Rates and deadlines of calls. The defaults are below every project's quotas."""

    per_minute: float = 1200
    """Calls of each group; Google's lowest default is 1,500."""
    burst: int = 10
    bulk_per_second: float = 10
    """Together with `burst` never above Google's 20 in any second."""
    bulk_at_once: int = 10
    """Bulk operations at the same time; Google's limit."""
    deadline_s: float = 120
    """Seconds until an action gets its event."""
    try_s: float = 10
    """Seconds without a byte of an answer after which a call is sent again."""


def limited(error: CloudError) -> bool:
    """Whether Google refused a call for its rate limit."""
    return error.status == TOO_MANY or error.reason in RATE_LIMIT


def may_pass(error: CloudError) -> bool:
    """Whether a call may succeed if sent again: no answer, server error, expired token."""
    if error.status >= SERVER_ERROR:
        return error.status != NOT_IMPLEMENTED and error.reason != NO_ROOM
    return error.status in (0, UNAUTHORIZED)


def pause_s(tried: int) -> float:
    """Seconds until a call is sent again.

    Random, at least half of the longest pause: calls that failed together don't return together.
    """
    longest: float = min(FIRST_BACKOFF_S * 2**tried, LONGEST_BACKOFF_S)
    return longest * random.uniform(0.5, 1)  # noqa: S311


OnCall = Callable[[str, float], None]
"""Gets the method and the seconds until its answer, or until it failed without one."""


class Transport:
    """Calls of one API; thread-safe."""

    def __init__(
        self,
        base: str,
        token: Token,
        limits: Limits,
        stop: threading.Event,
        called: OnCall = lambda *_: None,
        *,
        clock: Clock,
    ) -> None:
        """`base` is the API's address, with a slash at its end; `called` gets each request."""
        self.limits = limits
        self._called = called
        self._clock = clock
        self.server_time = ServerTime(clock)
        self.refusals = Refusals(clock)
        self.calls: Counter[tuple[str, str]] = Counter()
        """(method, HTTP status or Google's reason) -> how often."""
        self.buckets = {
            group: Bucket(
                limits.bulk_per_second if group is Group.BULK else limits.per_minute / 60,
                limits.burst,
                stop,
                clock=clock,
            )
            for group in Group
        }
        self._stop = stop
        self._token = token
        self._counting = threading.Lock()
        self._base = base
        self._path = urlsplit(base).path
        # All calls go to one host: a PoolManager would look up its pool for each.
        self._pool = urllib3.connection_from_url(base, maxsize=CONNECTIONS, retries=False)

    def call(
        self,
        method: str,
        verb: str,
        path: str,
        *,
        until: float,
        groups: tuple[Group, ...],
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        urgent: bool = True,
    ) -> dict[str, Any]:
        """Send a call, with retries, and return the answer.

        `method` is its name in the API, for the counters; `path` is relative to the base. Calls
        that are not `urgent` leave half of the rate limit's bucket to those that are.

        Raises:
            CloudError: it was refused, or has no answer by `until` (Clock.monotonic). Of several
                tries that may pass it is the last one without an answer: Google may have done it.

        """
        target = f"{path}?{urlencode(query)}" if query else path
        content = None if body is None else json.dumps(body).encode()
        failed: CloudError | None = None
        unanswered: CloudError | None = None
        for tried in count():
            try:
                for group in groups:
                    self.buckets[group].take(until, urgent=urgent)
                return self._once(method, verb, target, content, until)
            except TooLateError:
                raise unanswered or failed or _too_late(method) from None
            except CloudError as error:
                failed = error
            if is_outcome_unknown(of_call(failed)):
                unanswered = failed
            if limited(failed):
                self.buckets[groups[0]].slow()
            elif not may_pass(failed):
                raise failed
            self.refusals.add(method, failed.reason, f"{verb} {path}: {failed.reason} {failed}")
            if not self.pause(pause_s(tried), until):
                raise unanswered or failed
        raise AssertionError

    def pages(
        self, method: str, path: str, *, until: float, query: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list.

        Raises:
            CloudError: one of them can't be read.

        """
        token: dict[str, str] = {}
        while True:
            page = self.call(
                method, "GET", path, until=until, groups=(Group.LIST,), query={**query, **token}
            )
            yield page
            if not page.get("nextPageToken"):
                return
            token = {"pageToken": page["nextPageToken"]}

    def pause(self, seconds: float, until: float) -> bool:
        """Wait; False: there is not enough time left."""
        in_time = self._clock.monotonic() + seconds <= until
        return in_time and not self._clock.wait(self._stop.wait, seconds)

    def batch(
        self, method: str, calls: Sequence[tuple[str, str]]
    ) -> list[dict[str, Any] | CloudError]:
        """Send calls of one method (verb, path) in one request, without retries.

        An error of the request is that of each call. The caller has taken their tokens from the
        buckets.
        """
        body = http_batch.request([(verb, self._path + path) for verb, path in calls])
        try:
            answer = self._send(
                "batch",
                "POST",
                f"/batch{self._path.rstrip('/')}",
                content=body,
                kind=http_batch.CONTENT_TYPE,
                within=self.limits.try_s,
            )
            if answer.status >= BAD_REQUEST:
                raise self._refused_batch(answer)
            answers = http_batch.answers(answer.headers.get("content-type", ""), answer.data)
        except (ValueError, IndexError) as error:
            self._count("batch", "unreachable")
            lost = CloudError(f"no answers from {self._base}: {error}", 0, "unreachable")
            return [lost] * len(calls)
        except CloudError as error:
            return [error] * len(calls)
        missing = CloudError(f"no answer from {self._base} to one call of many", 0, "unreachable")
        return [
            self._read(method, path, *answers[number]) if number in answers else missing
            for number, (_, path) in enumerate(calls)
        ]

    def _refused_batch(self, answer: urllib3.BaseHTTPResponse) -> CloudError:
        failure = self._refused("batch", "batch", answer.status, answer.data)
        if failure.status == NOT_FOUND:
            # The batch's address is not there: that says nothing of what its calls are for.
            return CloudError(f"no answers from {self._base}: {failure}", 0, "unreachable")
        return failure

    def _once(
        self, method: str, verb: str, target: str, content: bytes | None, until: float
    ) -> dict[str, Any]:
        within = min(self.limits.try_s, until - self._clock.monotonic())
        if within <= 0:
            raise TooLateError
        kind = "" if content is None else "application/json"
        answer = self._send(
            method, verb, self._path + target, content=content, kind=kind, within=within
        )
        result = self._read(method, target, answer.status, answer.data)
        if isinstance(result, CloudError):
            raise result
        return result

    def _send(
        self,
        method: str,
        verb: str,
        target: str,
        *,
        content: bytes | None,
        kind: str,
        within: float,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Authorization": self._token.header(within)}
        if kind:
            headers["Content-Type"] = kind

        def ask(seconds: float) -> urllib3.BaseHTTPResponse:
            return self._pool.urlopen(
                verb,
                target,
                body=content,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, seconds), read=seconds),
                retries=False,
            )

        began = self._clock.monotonic()
        try:
            answer = self._clock.wait(ask, within)
        except (HTTPError, OSError) as error:
            self._count(method, "unreachable")
            # Without the seconds, which differ: an error is said once while it is the same.
            late = isinstance(error, urllib3.exceptions.TimeoutError)
            why = "it took too long" if late else str(error)
            raise CloudError(f"no answer from {self._base}: {why}", 0, "unreachable") from error
        finally:
            self._called(method, self._clock.monotonic() - began)
        self.server_time.answered(answer.headers.get("date"), began)
        if answer.status == UNAUTHORIZED:
            self._token.refused()
        return answer

    def _read(
        self, method: str, target: str, status: int, data: bytes
    ) -> dict[str, Any] | CloudError:
        if status >= BAD_REQUEST:
            return self._refused(method, target, status, data)
        self._count(method, str(status))
        try:
            return dict(json.loads(data)) if data else {}
        except (ValueError, TypeError) as error:
            # A truncated answer, a proxy's page, or JSON that is no object.
            return CloudError(f"no JSON from {self._base}: {error}", 0, "unreachable")

    def _refused(self, method: str, target: str, status: int, data: bytes) -> CloudError:
        failure = refused(status, data, self._base + target)
        self._count(method, failure.reason or str(status))
        return failure

    def _count(self, method: str, code: str) -> None:
        with self._counting:
            self.calls[method, code] += 1


def _too_late(method: str) -> CloudError:
    return CloudError(
        f"{method} was not sent in time: calls are held back to stay below Google's rate limit",
        0,
        "notSent",
    )
