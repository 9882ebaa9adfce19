"""What the cloud's refusals mean: whether another try, another place or nothing helps; pure.

https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation and
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability
"""

from enum import Enum

from muster.autoscaler.reconcile.model import Failure

# Prefixes: Google has _WITH_DETAILS forms.
_NO_ROOM = ("ZONE_RESOURCE_POOL_EXHAUSTED", "VM_MIN_COUNT_NOT_REACHED", "insufficientCapacity")
_NO_QUOTA = ("QUOTA_EXCEEDED", "quotaExceeded")
# A code of muster.autoscaler.compute.insert: a bulkInsert makes as many as there is room for.
_NOT_MADE = "notMade"
# https://cloud.google.com/compute/api-quota: refilled each minute.
_BUSY = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED")

# Of operations; each means that the same call may succeed later. Some come without an HTTP status.
_OPERATION = (
    "INTERNAL_ERROR",
    "RESOURCE_NOT_READY",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
)

# A template that has just been replaced: the metadata names the new one in a moment.
_REPLACED = "notFound"

# Codes of muster.autoscaler.compute: no answer, or none in time.
_UNKNOWN = ("unreachable", "timeout", "notSent", "noToken")

TOO_MANY, SERVER_ERROR = 429, 500


class Remedy(Enum):
    """What may help."""

    ELSEWHERE = "another zone, machine type or provisioning"
    LATER = "the same call again, after a while"
    NOTHING = "somebody must change something"


def remedy(failure: Failure) -> Remedy:
    """What may help after a failure."""
    if failure.code.startswith(_NO_ROOM) or failure.code in (*_NO_QUOTA, _NOT_MADE):
        return Remedy.ELSEWHERE
    temporary = failure.code in (*_BUSY, *_OPERATION, _REPLACED, *_UNKNOWN)
    if temporary or failure.status == TOO_MANY or failure.status >= SERVER_ERROR:
        return Remedy.LATER
    return Remedy.NOTHING


def sentence(failure: Failure) -> str:
    """A failure for a reason that users read: Google's code, then its message."""
    if failure.code and failure.code not in failure.message:
        return f"{failure.code}: {failure.message}" if failure.message else failure.code
    return failure.message
