"""What is wrong with a definition, in words that its author can act on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where it is written and what to do about it."""

    file: str
    line: int | None
    """First line is 1; None where the data came from no file."""
    path: str
    """Dotted keys, as `partitions.ml-gpu.nodes`; empty where no key is wrong."""
    message: str
    remedy: str
    check: str
    """Name of the check that found it."""
    more: int = 0
    """How many more there are like it, which are left out."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        parts = [part for part in (place, self.path) if part]
        more = f" (and {self.more:,} more like it)" if self.more else ""
        return ": ".join([*parts, f"{self.message}; {self.remedy}{more}"])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 disk`, `2 disks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class DefinitionError(Exception):
    """A definition is wrong; `problems` has all problems in the order of the files."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
