"""Errors as Google's APIs answer them.

The body is the same for all services (https://cloud.google.com/apis/design/errors and
https://cloud.google.com/storage/docs/json_api/v1/status-codes):

    {"error": {"code": 404, "message": "...", "status": "NOT_FOUND",
               "errors": [{"domain": "global", "reason": "notFound", "message": "..."}]}}
"""

from typing import Any

# HTTP status -> canonical code: https://cloud.google.com/apis/design/errors#handling_errors
STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ApiError(Exception):
    """A refused call.

    `status` is the HTTP status, `reason` the word of `errors[].reason`, `code` the canonical code
    where it is not what the status implies, `extra` further members of `error` (details).
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        code: str = "",
        domain: str = "global",
        **extra: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.code = code or STATUS.get(status, "UNKNOWN")
        self.domain = domain
        self.extra = extra

    def body(self) -> dict[str, Any]:
        """The JSON answer."""
        entry = {"message": self.message, "domain": self.domain, "reason": self.reason}
        return {
            "error": {
                "code": self.status,
                "message": self.message,
                "errors": [entry],
                "status": self.code,
                **self.extra,
            }
        }


def invalid(message: str, reason: str = "invalid") -> ApiError:
    """400: an invalid value."""
    return ApiError(400, reason, message)


def unauthenticated(message: str = "Request is missing required authentication.") -> ApiError:
    """401: no token, or an unknown one."""
    return ApiError(401, "authError", message)


def permission_denied(message: str) -> ApiError:
    """403: the identity's roles don't allow it."""
    return ApiError(403, "forbidden", message)


def quota(message: str) -> ApiError:
    """403: a quota of the project is used up."""
    return ApiError(403, "quotaExceeded", message)


def rate_limit(message: str) -> ApiError:
    """403: too many calls in a second."""
    return ApiError(403, "rateLimitExceeded", message, domain="usageLimits")


def not_found(resource: str) -> ApiError:
    """404 in Compute Engine's words; `resource` is projects/P/zones/Z/instances/N."""
    return ApiError(404, "notFound", f"The resource '{resource}' was not found")


def already_exists(resource: str) -> ApiError:
    """409: a resource of that name exists."""
    return ApiError(409, "alreadyExists", f"The resource '{resource}' already exists")


def in_use(resource: str, user: str) -> ApiError:
    """400: `user` still uses `resource`, so it can't be deleted."""
    return ApiError(
        400,
        "resourceInUseByAnotherResource",
        f"The {resource.split('/')[-2].removesuffix('s')} resource '{resource}' is already "
        f"being used by '{user}'",
    )


def precondition(message: str) -> ApiError:
    """412: a fingerprint, etag or generation that is no longer current."""
    return ApiError(412, "conditionNotMet", message)


def not_implemented(what: str) -> ApiError:
    """501: fakecloud doesn't implement this part of Google Cloud."""
    return ApiError(501, "notImplemented", f"fakecloud doesn't implement {what}")
