"""What Google says of a call or an operation that went wrong, as the plan's `Failure`."""

from collections import Counter

from muster.autoscaler.compute.operations import Operation
from muster.autoscaler.reconcile.model import Failure
from muster.gcp.api import CloudError

EXISTS = {"alreadyExists", "RESOURCE_ALREADY_EXISTS"}
"""Google's words of a call and of an operation for a name that is taken."""


def of_call(error: CloudError) -> Failure:
    """Why a call was refused, or that it had no answer."""
    return Failure(error.reason or str(error.status), error.message, error.status)


def of_operation(operation: Operation | None) -> Failure | None:
    """Why an operation failed; None: it ended well. An operation that is None has not ended."""
    if operation is None:
        return Failure("timeout", "its operation has not ended in time: nobody knows what comes")
    errors = (operation.get("error") or {}).get("errors") or []
    if not errors and not operation.get("httpErrorStatusCode"):
        return None
    first = errors[0] if errors else {}
    code = first.get("code") or str(operation["httpErrorStatusCode"])
    return Failure(code, first.get("message") or code)


def commonest(failed: dict[str, Failure], otherwise: Failure | None = None) -> Failure:
    """The reason that most names have."""
    if not failed:
        return otherwise or Failure("unknown", "Google does not say why")
    codes = Counter(each.code for each in failed.values())
    code = codes.most_common(1)[0][0]
    return next(each for each in failed.values() if each.code == code)


def unforeseen(error: Exception) -> Failure:
    """An answer that is not as Google documents it, or a mistake of ours."""
    return Failure("unforeseen", f"{error!r}; please report it with the daemon's log")
