"""What root of a host may send in place of an answer."""

from collections.abc import Iterator
from typing import Any

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4K\x07"
"""Has a terminal put a command into the clipboard."""

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2.5, 10**400, -(10**400), float("nan"), float("inf")),
    *("", "x", CLIPBOARD, "/dev/nvidia[0-", f"/dev/nvidia{'9' * 5000}"),
    *([], [[]], [None], ["x"], [{}], {}, {"x": 1}, {"x": {}}),
)


def variants(answer: Any) -> Iterator[Any]:
    """Yield an answer with each of its parts missing, and as each of `VALUES`."""
    yield from VALUES
    if isinstance(answer, dict):
        for key, part in answer.items():
            others = {name: value for name, value in answer.items() if name != key}
            yield others
            yield from ({**others, key: odd} for odd in variants(part))
    if isinstance(answer, list):
        for place, part in enumerate(answer):
            yield from ([*answer[:place], odd, *answer[place + 1 :]] for odd in variants(part))
