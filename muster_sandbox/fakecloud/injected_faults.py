"""Faults that a test injects: the next N calls of a method fail, are slow, or their work fails."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from muster_sandbox.fakecloud.api_errors import ApiError


@dataclass(frozen=True, slots=True)
class OperationError:
    """An operation's error; `status` and `message` become httpErrorStatusCode and -Message.

    Codes: https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation
    """

    code: str
    message: str
    status: int = 503
    http_message: str = "SERVICE UNAVAILABLE"


@dataclass(slots=True)
class Fault:
    """A fault of calls to methods that match `pattern` ("compute.instances.*")."""

    pattern: str
    times: int
    error: ApiError | None = None
    operation_error: OperationError | None = None
    delay_seconds: float = 0
    # Close the connection without an answer: the call is done, but the caller doesn't know it.
    drop: bool = False


@dataclass(slots=True)
class Faults:
    """The faults that have not happened yet, in the order in which they were added."""

    waiting: list[Fault] = field(default_factory=list)

    def add(
        self,
        pattern: str,
        *,
        times: int = 1,
        error: ApiError | None = None,
        operation_error: OperationError | None = None,
        delay_seconds: float = 0,
        drop: bool = False,
    ) -> None:
        """Let the next `times` calls that match fail (or be slow)."""
        self.waiting.append(Fault(pattern, times, error, operation_error, delay_seconds, drop))

    def refuse(self, method: str) -> None:
        """Raise the error that waits for a call of `method`."""
        fault = self._take(method, "error")
        if fault and fault.error:
            raise fault.error

    def delay_seconds(self, method: str) -> float:
        """Seconds before a call of `method` is handled."""
        fault = self._take(method, "delay_seconds")
        return fault.delay_seconds if fault else 0

    def drops(self, method: str) -> bool:
        """Whether the answer of `method` is lost."""
        return self._take(method, "drop") is not None

    def operation_error(self, method: str) -> OperationError | None:
        """The error with which the operation of a call of `method` ends."""
        fault = self._take(method, "operation_error")
        return fault.operation_error if fault else None

    def _take(self, method: str, what: str) -> Fault | None:
        for fault in self.waiting:
            if getattr(fault, what) and fnmatchcase(method, fault.pattern):
                fault.times -= 1
                if fault.times <= 0:
                    self.waiting.remove(fault)
                return fault
        return None
