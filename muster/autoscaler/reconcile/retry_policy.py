"""What the cloud's refusals mean: whether another try, another place or nothing helps; pure.

Google's codes are of calls (`quotaExceeded`) or of operations (`QUOTA_EXCEEDED`). Those of
operations come with an HTTP status or without; if a code is not known the status decides.

https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation,
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation and
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability
"""

from enum import Enum

from muster.autoscaler.reconcile.model import Failure

# Prefixes: Google has _WITH_DETAILS forms.
_NO_ROOM = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "RESOURCE_POOL_EXHAUSTED",
    "VM_MIN_COUNT_NOT_REACHED",
    "insufficientCapacity",
)
_NO_QUOTA = ("QUOTA_EXCEEDED", "quotaExceeded")
# A code of muster.autoscaler.compute.insert: a bulkInsert makes as many as there is room for.
_NOT_MADE = "notMade"
# Another one's VM has the name. A zone has each name once, and other zones don't know it:
# https://cloud.google.com/compute/docs/naming-resources
NAME_TAKEN = "alreadyExists"

# Prefixes; each means that the same call may succeed later.
_TEMPORARY = (
    # https://cloud.google.com/compute/api-quota: refilled each minute.
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "RATE_LIMIT_EXCEEDED",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",
    "INTERNAL_ERROR",
    "ABORTED",
    "RESOURCE_NOT_READY",
    "resourceNotReady",
    # The subnet has no free address; those of VMs that are deleted become free. It is the same in
    # all zones of its region.
    "IP_SPACE_EXHAUSTED",
    # A template that has just been replaced: the metadata names the new one in a moment.
    "notFound",
    # Codes of muster.autoscaler.compute: no answer, or none in time.
    "unreachable",
    "timeout",
    "notSent",
    "noToken",
    # Its node's previous VM is on its way out.
    "stillStopping",
)

_NO_ANSWER = ("unreachable", "timeout")
"""Codes of muster.autoscaler.compute: no answer, or no end of the operation in time."""

UNAUTHORIZED, TIMEOUT, TOO_MANY, SERVER_ERROR, NOT_IMPLEMENTED = 401, 408, 429, 500, 501


class Remedy(Enum):
    """What may help."""

    ELSEWHERE = "another zone, machine type or provisioning"
    LATER = "the same call again, after a while"
    NOTHING = "somebody must change something"


def remedy(failure: Failure) -> Remedy:
    """What may help after a failure."""
    if is_shortage(failure) or failure.code == NAME_TAKEN:
        return Remedy.ELSEWHERE
    status = failure.status
    passes = status in (UNAUTHORIZED, TIMEOUT, TOO_MANY) or status >= SERVER_ERROR
    if failure.code.startswith(_TEMPORARY) or (passes and status != NOT_IMPLEMENTED):
        return Remedy.LATER
    return Remedy.NOTHING


def is_shortage(failure: Failure) -> bool:
    """Whether a capacity pool has no room, or the quotas leave none."""
    return failure.code.startswith(_NO_ROOM) or failure.code in (*_NO_QUOTA, _NOT_MADE)


def is_outcome_unknown(failure: Failure) -> bool:
    """Whether Google may have done it all the same.

    Nobody answered, or the call ended with an error of Google's servers. The code of such an error
    is that of a call (`backendError`), or its HTTP status: a failed operation has done nothing.
    """
    of_call = failure.status >= SERVER_ERROR and not failure.code.isupper()
    return failure.code in _NO_ANSWER or (of_call and remedy(failure) is Remedy.LATER)


def sentence(failure: Failure) -> str:
    """A failure for a reason that users read: Google's code, then its message."""
    if failure.code and failure.code not in failure.message:
        return f"{failure.code}: {failure.message}" if failure.message else failure.code
    return failure.message
