"""Times of two numbers: hours and minutes to most people, and minutes and seconds to SLURM."""

import re
from collections.abc import Iterator

from muster.definition.checks.partitions import TIMES
from muster.definition.checks.registry import Finding, source_check
from muster.definition.checks.shape import is_time
from muster.definition.definition import Definition
from muster.definition.problems import counted
from muster.definition.schema_errors import SchemaError
from muster.definition.sources import Sources
from muster.definition.yaml_file import KeyPath

_CHECK = "number-with-colons"
_TWO_NUMBERS = re.compile(r"([0-9]{1,4}):([0-5][0-9])")
_DAY = 24


def _in_words(*parts: tuple[int, str]) -> str:
    return " and ".join(counted(number, noun) for number, noun in parts if number)


def _to_slurm(text: str) -> str | None:
    """What a time of two numbers is, and how it is written if the first one is hours."""
    match = _TWO_NUMBERS.fullmatch(text)
    if match is None:
        return None
    first, second = map(int, match.groups())
    if first + second == 0:
        return None
    verb = "is" if first + second == 1 else "are"
    return (
        f"{_in_words((first, 'minute'), (second, 'second'))} to SLURM; "
        f'{_in_words((first, "hour"), (second, "minute"))} {verb} "{text}:00"'
    )


def hours_as_minutes(d: Definition) -> Iterator[str]:
    """Times such as 4:00 and 24:00, of which people rarely mean minutes.

    No errors: somebody may know SLURM's notation.
    """
    for path, text in TIMES(d):
        match, words = _TWO_NUMBERS.fullmatch(text), _to_slurm(text)
        if match is None or words is None:
            continue
        first, second = map(int, match.groups())
        if first <= _DAY or (first % _DAY == 0 and second == 0):
            without_doubt = f"0:{first}:{second}" if second else str(first)
            minutes = f'{_in_words((first, "minute"), (second, "second"))} "{without_doubt}"'
            yield f'{".".join(map(str, path))}: "{text}" is {words}, and {minutes}'


@source_check(_CHECK, _CHECK)
def number_with_colons(sources: Sources) -> Iterator[Finding]:
    """A time without quotes: YAML 1.1 reads 4:00:00 as the number 14400."""
    for file, fault in sources.faults(_CHECK):
        if file != "cluster":
            continue  # what a role of yours reads there may be meant so
        below_cluster = fault.path[:1] == ("cluster",)
        path = fault.path[1:] if below_cluster else fault.path
        remedy = f'put it in quotes: "{fault.text}"'
        if below_cluster and _takes_time(path) and (words := _to_slurm(fault.text)):
            remedy += f", which is {words}"
        message = f"YAML reads {fault.text} as a number to the base 60"
        yield Finding(path, message, remedy, file, fault.line)


def _takes_time(path: KeyPath) -> bool:
    return len(path) > 1 and is_time(SchemaError(_CHECK, path, path, None, {}))
