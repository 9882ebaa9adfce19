"""Keeps the event log small while the same fails again and again, for thousands of nodes; pure.

What happens to a node for the first time since it was in service is always written. What repeats
is written too, up to `HOURLY` bytes an hour; the rest is counted, and each hour has a line with the
counts. So nothing is left out while a few nodes fail.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from muster.autoscaler.report.events import Facts, Line

HOURLY = 125_000
"""3 MB a day."""
HOUR_S = 3600.0


class Repeats:
    """What has been written of each node, and what was left out."""

    def __init__(self) -> None:
        self._written: defaultdict[str, set[str]] = defaultdict(set)
        """Node -> the kinds of lines that it has had since it was in service."""
        self._left = 0
        """Bytes of this hour."""
        self._until = -math.inf
        self._omitted: Counter[str] = Counter()
        """Kind -> how many lines."""

    def bounded(self, now: float, lines: Iterable[Line]) -> Iterator[Facts]:
        """Yield what is to be written of a pass."""
        if now >= self._until:
            if self._omitted:
                yield {"event": "repeated", "omitted": dict(self._omitted)}
            self._omitted.clear()
            self._left, self._until = HOURLY, now + HOUR_S
        for line in lines:
            if self._first(line) or self._fits(line):
                yield line.facts
            else:
                self._omitted[line.kind] += 1

    def _first(self, line: Line) -> bool:
        """Whether it is new for any of its nodes, or of no node."""
        kind, first = line.kind, not line.nodes
        for name in line.nodes:
            written = self._written[name]
            first = first or kind not in written
            written.add(kind)
            if line.ends:
                del self._written[name]
        return first

    def _fits(self, line: Line) -> bool:
        size = len(json.dumps(line.facts))
        if size > self._left:
            return False
        self._left -= size
        return True
