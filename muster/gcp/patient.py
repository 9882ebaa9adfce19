"""A client of Compute Engine that waits for rights that were granted just now.

Google answers 403 until a grant is in force: mostly within two minutes, sometimes seven or more.
https://cloud.google.com/iam/docs/access-change-propagation
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import requests

from muster.gcp.api import CloudError, Compute
from muster.gcp.reports import Progress

GRANT_S = 180.0
"""Seconds of refusals until a client takes them as final; Google's two minutes and some more."""
AGAIN_S = 5.0
"""Seconds between two tries."""
# Other 403s, such as an exceeded quota, have nothing to do with rights.
_NO_RIGHT = ("forbidden", "IAM_PERMISSION_DENIED", "PERMISSION_DENIED")


@dataclass
class _Patience:
    """What a client has left, and its copies with an earlier end."""

    progress: Progress
    until: float | None = None
    """When it takes refusals as final, in seconds of time.monotonic(); None: no refusal yet."""


class PatientCompute(Compute):
    """Repeats calls that Google refuses for want of a right, for GRANT_S in all.

    The time counts from the client's first refusal: somebody who lacks a right waits once, not at
    each call.
    """

    def __init__(
        self,
        project: str,
        progress: Progress,
        session: requests.Session | None = None,
        until: float = math.inf,
    ) -> None:
        """`progress` is told once that it waits; the others are those of `Compute`."""
        super().__init__(project, session, until)
        self._patience = _Patience(progress)

    def by(self, until: float) -> "PatientCompute":
        """The same client with an earlier end, and what is left of its patience."""
        end = min(until, self.service.until)
        other = PatientCompute(self.project, self._patience.progress, self.service.session, end)
        other._patience = self._patience
        return other

    def _call(self, verb: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        while True:
            try:
                return super()._call(verb, path, body, **query)
            except CloudError as error:
                if error.status != 403 or error.reason not in _NO_RIGHT:
                    raise
                self._wait(error)

    def _wait(self, error: CloudError) -> None:
        """Wait before the next try.

        Raises:
            CloudError: the refusal, which is final.

        """
        now = time.monotonic()
        patience = self._patience
        if patience.until is None:
            patience.until = now + GRANT_S
            patience.progress(
                f"Google refuses a call ({error}); trying again for {GRANT_S:.0f} s, because a "
                "right that was granted just now is in force a little later"
            )
        if now + AGAIN_S > min(patience.until, self.service.until):
            raise CloudError(
                f"{error}; if you were granted the right just now, run the same command again in "
                "some minutes, if not, ask for the roles that docs/cloud.md lists",
                error.status,
                error.reason,
            ) from error
        time.sleep(AGAIN_S)
