"""Google's access token, renewed ahead: no call waits for it while it is good."""

import datetime
import logging
import threading
from collections.abc import Callable

from google.auth.credentials import Credentials

from muster.gcp.api import CloudError

log = logging.getLogger("muster")

# The metadata server hands out one and the same until 5 minutes before its end:
# https://cloud.google.com/compute/docs/access/authenticate-workloads#applications
AHEAD_S = 240.0
AGAIN_S = 5.0
"""Seconds between two tries where there is no new one yet."""


class Token:
    """The token of some credentials; `header()` is what a call sends."""

    def __init__(
        self, credentials: Credentials, request: Callable[..., object], stop: threading.Event
    ) -> None:
        """Begin; `request` is a transport of google-auth's."""
        self._credentials = credentials
        self._request = request
        self._stop = stop
        self._first = threading.Event()
        self._wake = threading.Event()
        self._problem = ""
        if credentials.token and credentials.expiry is None:
            # Given from outside, as GOOGLE_OAUTH_ACCESS_TOKEN: there is nothing to renew.
            self._first.set()
        else:
            threading.Thread(target=self._renew, name="token", daemon=True).start()

    def header(self, within_s: float) -> str:
        """Return the value of Authorization.

        Raises:
            CloudError: there is no token that is good (reason `noToken`); it may come.

        """
        self._first.wait(within_s)
        if not self._credentials.token or self._left_s() <= 0:
            raise CloudError(
                f"no access token: {self._problem or 'nobody answers'}; look at the VM's service "
                "account and its metadata server",
                0,
                "noToken",
            )
        return f"Bearer {self._credentials.token}"

    def refused(self) -> None:
        """Get another one: Google doesn't take this one any more."""
        self._wake.set()

    def _left_s(self) -> float:
        expiry = self._credentials.expiry
        if expiry is None:
            return float("inf")
        # google-auth's are in UTC without saying so.
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        return float((expiry - now).total_seconds())

    def _renew(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._credentials.refresh(self._request)  # type: ignore[no-untyped-call]
                self._problem = ""
            except Exception as error:
                # google-auth's own errors, and what odd answers make of it.
                self._problem = str(error) or repr(error)
                log.warning("no access token: %r", error)
            self._first.set()
            self._wake.wait(
                max(self._left_s() - AHEAD_S, AGAIN_S) if not self._problem else AGAIN_S
            )
