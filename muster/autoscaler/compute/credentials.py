"""Google's access token, renewed before it expires: no call waits for it while it is valid."""

import datetime
import logging
import threading
from collections.abc import Callable

from google.auth.credentials import Credentials

from muster.autoscaler.clock import Clock
from muster.gcp.api import CloudError

log = logging.getLogger("muster")

# The metadata server gives the same token until 5 minutes before it expires:
# https://cloud.google.com/compute/docs/access/authenticate-workloads#applications
AHEAD_S = 240.0
AGAIN_S = 2.0
"""Seconds between two tries while there is no new token, and between two looks at the clock. Calls,
which pause for 8 s at most, are sent within 10 s when the token's endpoint answers again."""


class Token:
    """The token of some credentials; a call sends `header()`."""

    def __init__(
        self,
        credentials: Credentials,
        request: Callable[..., object],
        stop: threading.Event,
        *,
        clock: Clock,
    ) -> None:
        """Start renewing; `request` is a transport of google-auth's."""
        self._credentials = credentials
        self._request = request
        self._stop = stop
        self._clock = clock
        self._valid_until = 0.0
        """By Clock.monotonic."""
        self._first = threading.Event()
        self._wake = threading.Event()
        self._problem = ""
        if credentials.token and credentials.expiry is None:
            # Set by the caller (GOOGLE_OAUTH_ACCESS_TOKEN): there is nothing to renew.
            self._valid_until = float("inf")
            self._first.set()
        else:
            threading.Thread(target=self._renew, name="token", daemon=True).start()

    def header(self, within_s: float) -> str:
        """Return the value of Authorization.

        Raises:
            CloudError: there is no valid token yet (reason `noToken`).

        """
        self._clock.wait(self._first.wait, within_s)
        if not self._credentials.token or self._valid_until <= self._clock.monotonic():
            raise CloudError(
                f"no access token: {self._problem or 'no answer'}; look at the VM's service "
                "account and its metadata server",
                0,
                "noToken",
            )
        return f"Bearer {self._credentials.token}"

    def refused(self) -> None:
        """Renew the token now: Google has refused it."""
        self._wake.set()

    def _renew(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._refresh()
            self._first.set()
            pause_s = AGAIN_S
            while not (self._woken_in(pause_s) or self._stop.is_set() or self._due_in_s() <= 0):
                pause_s = min(AGAIN_S, self._due_in_s())

    def _woken_in(self, seconds: float) -> bool:
        return self._clock.wait(self._wake.wait, seconds)

    def _due_in_s(self) -> float:
        """Seconds until a new one is asked for."""
        return 0 if self._problem else self._valid_until - AHEAD_S - self._clock.monotonic()

    def _refresh(self) -> None:
        try:
            self._credentials.refresh(self._request)  # type: ignore[no-untyped-call]
        except Exception as error:
            # google-auth's own errors, and others that an invalid answer causes.
            problem = str(error) or repr(error)
            if problem != self._problem:
                log.warning("no access token: %r", error)
            self._problem = problem
            return
        self._problem = ""
        # google-auth's times are in UTC, without a time zone.
        now = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC).replace(tzinfo=None)
        expiry = self._credentials.expiry
        lasts_s = float("inf") if expiry is None else (expiry - now).total_seconds()
        self._valid_until = self._clock.monotonic() + lasts_s
