"""Whether the reports of hosts can be judged; pure.

Root of a host says what it likes, and the report of one must not keep the others from a verdict.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from muster.verify.alike import Reports

MAX_NUMBER, MAX_COUNT = 1e15, 2**64
"""An integer of JSON may be too large for the arithmetic of clocks, and for a terminal. The kernel
counts bytes in 64 bits."""

Fits = Callable[[Any], bool]
"""Whether a value is of the right type."""
Fields = Mapping[str, Fits]
"""What a report has, and whether a value fits there."""


def is_text(value: Any) -> bool:
    """Whether this is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Whether this is true or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether one can calculate with this, as with times."""
    # NaN is not less than anything.
    return isinstance(value, int | float) and abs(value) < MAX_NUMBER


def is_count(value: Any) -> bool:
    """Whether this is how many there are of something."""
    return isinstance(value, int) and not is_flag(value) and 0 <= value < MAX_COUNT


def is_code(value: Any) -> bool:
    """Whether this is the exit code of a program, or minus the number of a signal."""
    return isinstance(value, int) and abs(value) < 256


def one_of(values: Container[Any]) -> Fits:
    """Fit one of these."""
    return lambda value: value in values


def optional(fits: Fits) -> Fits:
    """Fit None too."""
    return lambda value: value is None or fits(value)


def many(fits: Fits) -> Fits:
    """Fit a list of such values."""
    return lambda value: isinstance(value, list) and all(map(fits, value))


def named(fits: Fits) -> Fits:
    """Fit a mapping of names to such values."""
    return lambda value: (
        isinstance(value, Mapping) and all(map(is_text, value)) and all(map(fits, value.values()))
    )


def has(fields: Fields) -> Fits:
    """Fit a mapping with these fields."""
    return lambda value: _wrong(value, fields) is None


_NAMED_TEXTS = named(is_text)


def _is_credential(value: Any) -> bool:
    return _NAMED_TEXTS(value) and not {"text", "error"}.isdisjoint(value)


HOST: Fields = {
    "inactive": _NAMED_TEXTS,
    "failed": many(is_text),
    "clock": is_number,
    "system": is_text,
    "kernel": is_text,
    "driver": is_text,
    "python": is_text,
    "packages": _NAMED_TEXTS,
    # None for one that is missing.
    "module_packages": named(optional(is_text)),
    "updates": many(has({"package": is_text, "version": is_text, "security": is_flag})),
    "time_sources": optional(_NAMED_TEXTS),
    "credential": _is_credential,
}
"""Of the module host_report. The action plugin adds `earliest` and `latest` itself."""


def sound(hosts: Reports, fields: Fields = HOST) -> Reports:
    """Return the reports that have all their fields, of the right types."""
    return {host: report for host, report in hosts.items() if _wrong(report, fields) is None}


def problems(hosts: Reports, fields: Fields = HOST) -> Iterator[str]:
    """Yield a sentence for each of the other reports."""
    for host, report in hosts.items():
        field = _wrong(report, fields)
        if report == {}:  # what the role verify has for a host without one
            yield f"{host}: it gave no report; run again"
        elif field is not None:
            yield (
                f"{host}: its report can't be right: {field} is missing or of another type; find "
                "out who changed programs there, or install the host again"
            )


def _wrong(report: Any, fields: Fields) -> str | None:
    """Return the first field of a report that is missing or of another type."""
    given = report if isinstance(report, Mapping) else {}
    return next(
        (key for key, fits in fields.items() if key not in given or not fits(given[key])), None
    )
