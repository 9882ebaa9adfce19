"""How far Google's clock is ahead of ours, by the Date of its answers.

https://www.rfc-editor.org/rfc/rfc9110#name-date: whole seconds. The difference is kept until an
answer contradicts it clearly, so that a VM's time doesn't change from list to list.
"""

from email.utils import parsedate_to_datetime

from muster.autoscaler.clock import Clock

SLACK_S = 1.5
"""A difference is replaced when it lies by more than this outside of what an answer allows."""


class ServerTime:
    """Google's clock; thread-safe: each measurement alone is right."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._dated = False
        """Whether an answer had a Date."""
        # Until an answer has one, our own clock is taken for Google's.
        self.ahead_s = clock.now() - clock.monotonic()
        """Google's seconds since the epoch minus `Clock.monotonic`."""

    def answered(self, date: str | None, sent: float) -> None:
        """Measure by an answer that has just come; `sent` is the time of its call, monotonic."""
        received = self._clock.monotonic()
        if date is None:
            if self._dated:
                return
            least = most = self._clock.now() - received
        else:
            try:
                second = parsedate_to_datetime(date).timestamp()
            except ValueError:
                # A proxy's; the next answer has another one.
                return
            least, most = second - received, second + 1 - sent
        first = date is not None and not self._dated
        if first or not least - SLACK_S <= self.ahead_s <= most + SLACK_S:
            self.ahead_s = (least + most) / 2
        self._dated = self._dated or date is not None
