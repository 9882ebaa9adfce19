"""Whether the reports of hosts can be judged; pure.

Root of a host says what it likes, and the report of one must not keep the others from a verdict.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from muster.verify.alike import Reports

MAX_SECONDS = 1e15
"""An integer of JSON may be too large for the arithmetic of clocks."""


def sound(hosts: Reports) -> Reports:
    """Return the reports that have all their fields, of the right types."""
    return {host: report for host, report in hosts.items() if _wrong(report) is None}


def problems(hosts: Reports) -> Iterator[str]:
    """Yield a sentence for each of the other reports."""
    for host, report in hosts.items():
        field = _wrong(report)
        if report == {}:  # what the role verify has for a host without one
            yield f"{host}: it gave no report; run again"
        elif field is not None:
            yield (
                f"{host}: its report can't be right: {field} is missing or of another type; find "
                "out who changed programs there, or install the host again"
            )


def _wrong(report: Any) -> str | None:
    """Return the first field of a report that is missing or of another type."""
    has = report if isinstance(report, Mapping) else {}
    return next((key for key, fits in FIELDS.items() if key not in has or not fits(has[key])), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_time(value: Any) -> bool:
    # NaN is not less than anything.
    return isinstance(value, int | float) and abs(value) < MAX_SECONDS


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_named_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, [*value, *value.values()]))


def _are_versions(value: Any) -> bool:
    """Whether these are packages with their versions, None for one that is missing."""
    return isinstance(value, Mapping) and all(
        _is_text(name) and (version is None or _is_text(version)) for name, version in value.items()
    )


def _are_updates(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, Mapping)
        and _is_text(row.get("package"))
        and _is_text(row.get("version"))
        and isinstance(row.get("security"), bool)
        for row in value
    )


def _are_sources(value: Any) -> bool:
    return value is None or _are_named_texts(value)


def _is_credential(value: Any) -> bool:
    return _are_named_texts(value) and not {"text", "error"}.isdisjoint(value)


FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "inactive": _are_named_texts,
    "failed": _are_texts,
    "clock": _is_time,
    "system": _is_text,
    "kernel": _is_text,
    "driver": _is_text,
    "python": _is_text,
    "packages": _are_named_texts,
    "module_packages": _are_versions,
    "updates": _are_updates,
    "time_sources": _are_sources,
    "credential": _is_credential,
}
"""Field -> whether a value fits. The action plugin adds `earliest` and `latest` itself."""
