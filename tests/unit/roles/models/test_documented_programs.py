"""The commands of docs/models.md are those of the programs."""

import re
import shlex

import pytest
from documentation import ROOT, Page

PAGE = Page(ROOT / "docs/models.md")
LINES = [
    line
    for block in PAGE.blocks("text")
    for line in block.text.splitlines()
    if re.match(r"muster-(models|data) ", line)
]


def test_the_page_has_commands() -> None:
    assert len(LINES) > 8


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_taken(line: str) -> None:
    from muster_models import data, models

    program, *words = shlex.split(line)
    parser = {"muster-models": models.parser, "muster-data": data.parser}[program]()
    options = parser.parse_args(words)
    if options.command == "add":
        # Names, licences and digests that fit the source.
        models._check(options)


def test_the_page_s_command_line_is_that_of_muster_too() -> None:
    from muster_models import data, models

    from muster.cli.exit_codes import EXIT_CODES

    def commands(parser: object) -> list[str]:
        return list(parser._subparsers._group_actions[0].choices)  # type: ignore[attr-defined]

    told = {name for name in EXIT_CODES if name.split()[0] in ("models", "data")}
    assert told == {f"models {name}" for name in commands(models.parser())} | {
        f"data {name}" for name in commands(data.parser())
    }
