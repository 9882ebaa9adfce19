"""The documentation as data: pages, their fenced blocks, and the commands in them.

A block of kind `console` has commands behind a prompt that says where they are typed (`$`: in a
checkout; `ada@lab-access$`, `root@lab-access#`: on a host), each followed by what it prints, with
`...` for what varies. tests/unit/test_docs.py and tests/live read it.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")]
)
"""Written by hand; docs/reference is made from the code."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^(?:(?P<user>[a-z]+)@(?P<host>[a-z0-9-]+)[$#]|\$) (?P<line>.+)$")


@dataclass(frozen=True)
class Command:
    """A command as a page shows it."""

    line: str
    user: str | None
    """None: the reader types it in a checkout."""
    host: str | None
    shown: tuple[str, ...]
    """Lines that it prints according to the page."""

    def prints(self, output: str) -> bool:
        """Whether `output` has the shown lines in this order, whatever their spacing."""
        pattern = ".*".join(
            ".*".join(r"\s+".join(map(re.escape, part.split())) for part in line.split("..."))
            for line in self.shown
        )
        return re.search(pattern, output, re.DOTALL) is not None


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: "Page"
    line: int
    """Of its fence."""
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block, in order.

        Raises:
            ValueError: its first line has no prompt.

        """
        parsed: list[Command] = []
        for line in self.text.splitlines():
            if match := PROMPT.match(line):
                parsed.append(Command(match["line"], match["user"], match["host"], ()))
            elif not parsed:
                raise ValueError(f"{self}: {line!r} has no prompt")
            else:
                last = parsed.pop()
                shown = (*last.shown, line)
                parsed.append(Command(last.line, last.user, last.host, shown))
        return parsed


@dataclass(frozen=True)
class Page:
    """A page of the documentation."""

    path: Path

    @property
    def name(self) -> str:
        """Its path from the root."""
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """The text outside of fenced blocks."""
        return FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """Code in the prose, without its backticks."""
        return re.findall(r"`([^`\n]+)`", self.prose)

    def blocks(self, kind: str | None = None) -> list[Block]:
        """The fenced blocks in order, those of one kind if named."""
        return [
            Block(self, self.text[: match.start()].count("\n") + 1, match[1], match[2])
            for match in FENCE.finditer(self.text)
            if kind in (None, match[1])
        ]

    def table(self, *head: str) -> list[list[str]]:
        """The cells of the table with these heads, without backticks."""
        first = f"| {' | '.join(head)} |\n"
        lines = self.text.split(first, 1)[1].partition("\n\n")[0].splitlines()[1:]
        return [[cell.strip(" `") for cell in line[1:-1].split(" | ")] for line in lines]

    @property
    def commands(self) -> list[Command]:
        """The commands of all its console blocks."""
        return [command for block in self.blocks("console") for command in block.commands]


def merged(old: Any, new: Any) -> Any:
    """Return a mapping with the changes of another one."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merged(old.get(key), value) for key, value in new.items()}
    return new


def pages() -> list[Page]:
    """Return all pages."""
    return [Page(path) for path in PAGES]
