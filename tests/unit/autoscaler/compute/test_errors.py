"""What an error of a call or an operation means: by Google's code if documented, else by status."""

from typing import Any

import pytest

from muster.autoscaler.compute import errors
from muster.autoscaler.compute.api_client import limited, may_pass
from muster.autoscaler.reconcile.retry_policy import Remedy, is_outcome_unknown, remedy
from muster.gcp.api import CloudError

ELSEWHERE, LATER, NOTHING = Remedy.ELSEWHERE, Remedy.LATER, Remedy.NOTHING

# Code and HTTP status of an operation; 0: Google gives none. The pages are named in retry_policy.
OPERATIONS = [
    # The zone has no capacity for it.
    ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, ELSEWHERE),
    ("ZONE_RESOURCE_POOL_EXHAUSTED", 0, ELSEWHERE),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503, ELSEWHERE),
    ("RESOURCE_POOL_EXHAUSTED", 503, ELSEWHERE),
    ("VM_MIN_COUNT_NOT_REACHED", 409, ELSEWHERE),
    ("VM_MIN_COUNT_NOT_REACHED", 0, ELSEWHERE),
    # The project has no quota for it.
    ("QUOTA_EXCEEDED", 403, ELSEWHERE),
    ("QUOTA_EXCEEDED", 0, ELSEWHERE),
    # Too many calls at this moment.
    ("RATE_LIMIT_EXCEEDED", 403, LATER),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", 429, LATER),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", 0, LATER),
    ("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", 403, LATER),
    # Something else has to end first.
    ("RESOURCE_NOT_READY", 400, LATER),
    ("RESOURCE_NOT_READY", 0, LATER),
    ("IP_SPACE_EXHAUSTED", 403, LATER),
    ("IP_SPACE_EXHAUSTED_WITH_DETAILS", 0, LATER),
    ("ABORTED", 409, LATER),
    # Google's own failure.
    ("INTERNAL_ERROR", 500, LATER),
    ("INTERNAL_ERROR", 0, LATER),
    ("", 502, LATER),
    # Somebody must change the project, the definition or the rights.
    ("PERMISSIONS_ERROR", 403, NOTHING),
    ("SERVICE_ACCOUNT_ACCESS_DENIED", 400, NOTHING),
    ("CONDITION_NOT_MET", 412, NOTHING),
    ("UNSUPPORTED_OPERATION", 400, NOTHING),
    ("RESOURCE_NOT_FOUND", 404, NOTHING),
    ("INVALID_USAGE", 400, NOTHING),
    ("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", 400, NOTHING),
    ("", 400, NOTHING),
    # A code that is not documented: its status decides.
    ("ANYTHING_NEW", 503, LATER),
    ("ANYTHING_NEW", 429, LATER),
    ("ANYTHING_NEW", 408, LATER),
    ("ANYTHING_NEW", 501, NOTHING),
    ("ANYTHING_NEW", 400, NOTHING),
    ("ANYTHING_NEW", 0, NOTHING),
]

# Reason and HTTP status of a call.
CALLS = [
    ("insufficientCapacity", 503, ELSEWHERE),
    ("quotaExceeded", 403, ELSEWHERE),
    ("rateLimitExceeded", 403, LATER),
    ("userRateLimitExceeded", 403, LATER),
    ("backendError", 503, LATER),
    ("internalError", 500, LATER),
    ("resourceNotReady", 400, LATER),
    ("requestTimeout", 408, LATER),
    # A template that has just been replaced: the metadata names the new one in a moment.
    ("notFound", 404, LATER),
    ("unreachable", 0, LATER),
    ("noToken", 0, LATER),
    ("notSent", 0, LATER),
    ("forbidden", 403, NOTHING),
    ("accessNotConfigured", 403, NOTHING),
    ("invalid", 400, NOTHING),
    ("badRequest", 400, NOTHING),
    ("conditionNotMet", 412, NOTHING),
    ("notImplemented", 501, NOTHING),
]


def operation(code: str, status: int = 0) -> dict[str, Any]:
    """Return an operation that failed, as zoneOperations.list has it."""
    error = {"errors": [{"code": code, "message": "as Google says"}]} if code else {}
    return {"error": error} | ({"httpErrorStatusCode": status} if status else {})


@pytest.mark.parametrize(("code", "status", "wanted"), OPERATIONS)
def test_what_may_help_after_an_operation_failed(code: str, status: int, wanted: Remedy):
    failure = errors.of_operation(operation(code, status))
    assert failure
    assert remedy(failure) is wanted


@pytest.mark.parametrize(("reason", "status", "wanted"), CALLS)
def test_what_may_help_after_a_call_failed(reason: str, status: int, wanted: Remedy):
    error = CloudError("as Google says", status, reason)
    assert remedy(errors.of_call(error)) is wanted
    # The driver itself sends a call again only if that may help.
    assert wanted is Remedy.LATER or not (limited(error) or may_pass(error))


@pytest.mark.parametrize(
    ("reason", "status"), [("backendError", 503), ("", 502), ("unreachable", 0)]
)
def test_a_call_that_google_s_servers_failed_may_have_worked(reason: str, status: int):
    assert is_outcome_unknown(errors.of_call(CloudError("as Google says", status, reason)))


@pytest.mark.parametrize(
    ("reason", "status"),
    [("insufficientCapacity", 503), ("notImplemented", 501), ("rateLimitExceeded", 403)],
)
def test_a_call_that_was_refused_has_done_nothing(reason: str, status: int):
    assert not is_outcome_unknown(errors.of_call(CloudError("as Google says", status, reason)))


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "ANYTHING_NEW", "ZONE_RESOURCE_POOL_EXHAUSTED"])
def test_an_operation_that_failed_has_done_nothing(code: str):
    failure = errors.of_operation(operation(code, 503))
    assert failure
    assert not is_outcome_unknown(failure)


def test_an_operation_that_succeeded_is_no_failure():
    assert errors.of_operation({"status": "DONE"}) is None


def test_of_one_that_has_not_ended_the_outcome_is_unknown():
    failure = errors.of_operation(None)
    assert failure
    assert remedy(failure) is Remedy.LATER
