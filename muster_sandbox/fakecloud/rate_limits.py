"""The rate limits of Compute Engine: calls above them get 403, as from Google.

https://cloud.google.com/compute/api-quota: each group of methods has its own limit, and each call
of a batch counts.
"""

from enum import StrEnum

from muster_sandbox.fakecloud.api_errors import rate_limit


class Group(StrEnum):
    """Methods that share a limit."""

    LIST = "list"
    READ = "read"
    CHANGE = "change"


class Rates:
    """A token bucket for each group; its size is the calls of one second."""

    def __init__(self) -> None:
        self._left: dict[Group, tuple[float, float]] = {}
        """Group -> tokens, and the time of the last count."""

    def take(self, method: str, per_second: float, now: float) -> None:
        """Count a call; `per_second` is each group's limit, 0 = unlimited.

        Raises:
            ApiError: rateLimitExceeded.

        """
        if not per_second or not method.startswith("compute."):
            return
        group = group_of(method)
        tokens, counted = self._left.get(group, (per_second, now))
        tokens = min(per_second, tokens + (now - counted) * per_second)
        refused = tokens < 1
        self._left[group] = (tokens if refused else tokens - 1, now)
        if refused:
            raise rate_limit(
                f"Quota exceeded for quota metric '{group}' and limit '{per_second:g} per second'"
            )


def group_of(method: str) -> Group:
    """The group of a method, given as in the API description: `compute.instances.insert`."""
    verb = method.rpartition(".")[2]
    if verb in ("list", "aggregatedList"):
        return Group.LIST
    return Group.READ if verb.startswith("get") else Group.CHANGE
