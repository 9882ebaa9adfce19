"""Google's access token, renewed before it expires: no call waits for it while it is valid."""

import datetime
import logging
import threading
from collections.abc import Callable

from google.auth.credentials import Credentials

from muster.gcp.api import CloudError

log = logging.getLogger("muster")

# The metadata server gives the same token until 5 minutes before it expires:
# https://cloud.google.com/compute/docs/access/authenticate-workloads#applications
AHEAD_S = 240.0
AGAIN_S = 5.0
"""Seconds between two tries while there is no new token."""


class Token:
    """The token of some credentials; a call sends `header()`."""

    def __init__(
        self, credentials: Credentials, request: Callable[..., object], stop: threading.Event
    ) -> None:
        """Start renewing; `request` is a transport of google-auth's."""
        self._credentials = credentials
        self._request = request
        self._stop = stop
        self._first = threading.Event()
        self._wake = threading.Event()
        self._problem = ""
        if credentials.token and credentials.expiry is None:
            # Set by the caller (GOOGLE_OAUTH_ACCESS_TOKEN): there is nothing to renew.
            self._first.set()
        else:
            threading.Thread(target=self._renew, name="token", daemon=True).start()

    def header(self, within_s: float) -> str:
        """Return the value of Authorization.

        Raises:
            CloudError: there is no valid token yet (reason `noToken`).

        """
        self._first.wait(within_s)
        if not self._credentials.token or self._left_s() <= 0:
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

    def _left_s(self) -> float:
        expiry = self._credentials.expiry
        if expiry is None:
            return float("inf")
        # google-auth's times are in UTC, without a time zone.
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        return float((expiry - now).total_seconds())

    def _renew(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._credentials.refresh(self._request)  # type: ignore[no-untyped-call]
                self._problem = ""
            except Exception as error:
                # google-auth's own errors, and others that an invalid answer causes.
                self._problem = str(error) or repr(error)
                log.warning("no access token: %r", error)
            self._first.set()
            self._wake.wait(
                max(self._left_s() - AHEAD_S, AGAIN_S) if not self._problem else AGAIN_S
            )
