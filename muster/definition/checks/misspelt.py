"""Names that are misspelt where they are defined: one error, not one for each use."""

from collections.abc import Iterator
from dataclasses import dataclass

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import UnknownName, names_of, place_of, rows
from muster.definition.definition import Definition
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

CHECK = "name-misspelt"
_USES = 2
"""So many uses of another name say that the definition is misspelt, and not they..."""
_ALWAYS_USED = ("nodes",)
"""... or one use, where a name that nobody uses is a mistake itself."""


@dataclass(frozen=True)
class Misspelt:
    """A name that nobody uses, and one like it that is used and not defined."""

    place: KeyPath
    """Keys of the mapping that defines such names, such as `nodes`."""
    defined: str
    used: str
    uses: int


def misspelt(d: Definition) -> Iterator[Misspelt]:
    """Find names that are misspelt where they are defined."""
    unknown_names = [row for row in rows() if isinstance(row, UnknownName)]
    for known in {row.known: None for row in unknown_names}:
        place, names = place_of(known), names_of(d, known)
        values = [
            value for row in unknown_names if row.known == known for _, value in row.values(d)
        ]
        if place == _ALWAYS_USED:
            # The hosts of a node set are the group of its name.
            values += [group for group in {*values, *names} if d.hosts.groups.get(group)]
        unused = names - {*values}
        for used in dict.fromkeys(value for value in values if value not in names):
            uses, defined = values.count(used), nearest(used, unused)
            if defined and (uses >= _USES or place == _ALWAYS_USED):
                yield Misspelt(place, defined, used, uses)


@check(CHECK)
def name_misspelt(d: Definition) -> Iterator[Finding]:
    """A name that nobody uses, beside uses of one like it that is not defined."""
    for name in misspelt(d):
        times = {1: "once", 2: "twice"}.get(name.uses, f"{name.uses} times")
        # One against one: the file does not say which of the two is meant.
        certain = name.uses >= _USES
        yield Finding(
            (*name.place, name.defined),
            f'nothing names "{name.defined}", and "{name.used}", which is not there, is named '
            f"{times}",
            f'did you mean "{name.used}"?' if certain else "write both alike",
            because=(*name.place, name.used),
        )
