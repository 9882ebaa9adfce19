"""The syntax of slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf: lines of `Key=value`."""

import re
from collections.abc import Collection, Iterable, Mapping

from muster.definition.schema.base import Scalar

Line = dict[str, str]
"""The keys of one line in their order: one, or more where a line describes a node or partition."""

_ITEM = re.compile(r'(\w+)=("[^"]*"|\S*)')
# A backslash takes the meaning from the next character (src/common/parse_config.c).
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_SPECIAL = re.compile(r"([\\#])")
_ESCAPED = re.compile(r"\\(.)")


def word(value: Scalar) -> str:
    """Return a value as SLURM reads it: yes and no for booleans, quotes around blanks.

    Raises:
        ValueError: a line break or a quote, which no value of these files can hold.

    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if re.search(r'[\n\r"]', text):
        raise ValueError(f"no line break or quote can stand in a value: {text!r}")
    text = _SPECIAL.sub(r"\\\1", text)
    return f'"{text}"' if re.search(r"\s", text) else text


def line(items: Mapping[str, Scalar]) -> str:
    """Return one line, its keys in the order of the mapping."""
    return " ".join(f"{key}={word(value)}" for key, value in items.items())


def text(lines: Iterable[str]) -> str:
    """Return lines as the content of a file; nothing for no lines."""
    return "".join(f"{entry}\n" for entry in lines)


def parse(content: str) -> list[Line]:
    """Return the lines of a file that hold keys, comments left out."""
    return [
        {key: _ESCAPED.sub(r"\1", value.strip('"')) for key, value in items}
        for entry in content.split("\n")
        if (items := _ITEM.findall(_COMMENT.sub(r"\1", entry)))
    ]


def merge(
    own: Mapping[str, Scalar],
    overrides: Mapping[str, Scalar],
    entries: Mapping[str, str],
    merged_lists: Collection[str] = (),
) -> dict[str, Scalar]:
    """Return `own` with `overrides` in place of equal keys, then the other overrides by name.

    Keys are equal in any case, as SLURM reads them. `entries` names, for parameters that are
    comma-separated lists, those entries of `own` that are kept whatever the override says. Of the
    lists named in `merged_lists` all other entries are kept too, except those that the override
    sets itself (`bf_window=60`) or takes out (`-bf_continue`).
    """
    given = {key.lower(): (key, value) for key, value in overrides.items()}
    merged: dict[str, Scalar] = {}
    for key, value in own.items():
        _, override = given.pop(key.lower(), (key, value))
        named = entries.get(key, "").split(",")
        kept = str(value).split(",")
        if key not in merged_lists:
            kept = [entry for entry in kept if entry in named]
        elif override is not value:
            given_here = [entry.strip() for entry in str(override).split(",") if entry.strip()]
            out = {_setting(entry[1:]) for entry in given_here if entry.startswith("-")}
            kept = [entry for entry in kept if entry in named or _setting(entry) not in out]
            override = ",".join(entry for entry in given_here if not entry.startswith("-"))
        merged[key] = _with_entries(override, kept)
    for _, (key, value) in sorted(given.items()):
        merged[key] = value
    return merged


def _with_entries(value: Scalar, entries: Iterable[str]) -> Scalar:
    given = {_setting(entry) for entry in str(value).split(",")}
    missing = [entry for entry in entries if _setting(entry) not in given]
    return ",".join([*missing, *([str(value)] if value != "" else [])]) if missing else value


def _setting(entry: str) -> str:
    """Return what an entry sets, as SLURM compares it: `a` of `A=1`."""
    return entry.strip().partition("=")[0].lower()
