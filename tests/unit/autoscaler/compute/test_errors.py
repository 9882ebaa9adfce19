"""What an operation's error means: by its code where Google documents one, else by its status."""

from typing import Any

import pytest

from muster.autoscaler.compute import errors
from muster.autoscaler.reconcile.retry_policy import Remedy, remedy


def operation(code: str, status: int = 0) -> dict[str, Any]:
    """Return an operation that failed, as zoneOperations.list has it."""
    error = {"errors": [{"code": code, "message": "as Google says"}]} if code else {}
    return {"error": error} | ({"httpErrorStatusCode": status} if status else {})


TEMPORARY = [
    operation("INTERNAL_ERROR", 500),
    operation("INTERNAL_ERROR"),
    operation("RATE_LIMIT_EXCEEDED", 403),
    operation("RESOURCE_OPERATION_RATE_EXCEEDED", 429),
    operation("RESOURCE_OPERATION_RATE_EXCEEDED"),
    operation("RESOURCE_NOT_READY", 400),
    operation("ANYTHING_NEW", 503),
    operation("ANYTHING_NEW", 429),
    operation("", 502),
]
NO_ROOM = [
    operation("ZONE_RESOURCE_POOL_EXHAUSTED", 503),
    operation("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503),
    operation("VM_MIN_COUNT_NOT_REACHED", 503),
    operation("QUOTA_EXCEEDED", 403),
]
PERMANENT = [
    operation("PERMISSIONS_ERROR", 403),
    operation("UNSUPPORTED_OPERATION", 400),
    operation("RESOURCE_NOT_FOUND", 404),
    operation("ANYTHING_NEW", 400),
    operation("", 400),
]


@pytest.mark.parametrize(
    ("failed", "wanted"),
    [
        *((failed, Remedy.LATER) for failed in TEMPORARY),
        *((failed, Remedy.ELSEWHERE) for failed in NO_ROOM),
        *((failed, Remedy.NOTHING) for failed in PERMANENT),
    ],
)
def test_what_may_help_after_an_operation_failed(failed: dict[str, Any], wanted: Remedy):
    failure = errors.of_operation(failed)
    assert failure
    assert remedy(failure) is wanted


def test_an_operation_that_succeeded_is_no_failure():
    assert errors.of_operation({"status": "DONE"}) is None


def test_of_one_that_has_not_ended_the_outcome_is_unknown():
    failure = errors.of_operation(None)
    assert failure
    assert remedy(failure) is Remedy.LATER
