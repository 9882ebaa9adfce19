"""Google's error of a call or an operation, as the `Failure` that reconcile reads."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from muster.autoscaler.reconcile.model import Failure
from muster.gcp.api import CloudError

EXISTS = {"alreadyExists", "RESOURCE_ALREADY_EXISTS"}
"""Google's codes, of a call and of an operation, for a name that exists already."""


def of_call(error: CloudError) -> Failure:
    """Why a call was refused, or why there is no answer."""
    return Failure(error.reason or str(error.status), error.message, error.status)


def of_operation(operation: Mapping[str, Any] | None) -> Failure | None:
    """Why an operation failed; None: it succeeded. An operation that is None has not ended."""
    if operation is None:
        return Failure("timeout", "its operation has not ended in time, so its outcome is unknown")
    errors = (operation.get("error") or {}).get("errors") or []
    if not errors and not operation.get("httpErrorStatusCode"):
        return None
    first = errors[0] if errors else {}
    status = int(operation.get("httpErrorStatusCode") or 0)
    code = first.get("code") or str(status)
    return Failure(code, first.get("message") or code, status)


def commonest(failed: dict[str, Failure], otherwise: Failure | None = None) -> Failure:
    """The reason that most names have."""
    if not failed:
        return otherwise or Failure("unknown", "Google does not say why")
    codes = Counter(failure.code for failure in failed.values())
    code = codes.most_common(1)[0][0]
    return next(failure for failure in failed.values() if failure.code == code)


def unexpected(error: Exception) -> Failure:
    """An answer that is not as Google documents it, or a bug in Muster."""
    return Failure("unexpected", f"{error!r}; please report it with the daemon's log")
