"""Hostlists: `lab-gpu-[01-02]` for many names, in the form that SLURM reads."""

import re
from collections.abc import Iterable
from functools import lru_cache

# Hostlists have host names only: "@" must not make ClusterShell read the machine's group files.
from ClusterShell.NodeSet import (  # type: ignore[import-untyped]
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
)

MOST_NAMES = 100_000
"""In one hostlist; the largest clusters have a tenth of it. Any user can send one to the gate."""

MOST_BOXES = 50
"""Names with two brackets in one hostlist: what ClusterShell takes grows with their square."""

SHOWN = 100
"""Characters of a hostlist in an error."""

_WORD = re.compile(r"[\[\],]|[^\[\],]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/[0-9]+)?)?")


def fold(names: Iterable[str]) -> str:
    """Return names as one hostlist, sorted; the same names give the same text in any order.

    SLURM takes a range only at the end of a name (slurm.conf(5): "unit[0-31]rack" is invalid), so
    other names are listed one by one, and only the last number of a name is folded.
    """
    return _folded(tuple(names))


@lru_cache(maxsize=64)  # a cluster's files name the nodes of one set in four places
def _folded(names: tuple[str, ...]) -> str:
    foldable, others = [], set()
    for name in names:
        if name[-1].isdecimal() and not name.isdecimal():
            foldable.append(name)
        else:
            others.add(name)
    nodes = NodeSet.fromlist(foldable, resolver=RESOLVER_NOGROUP)
    nodes.fold_axis = (-1,)
    return ",".join([*([str(nodes)] if nodes else []), *sorted(others)])


def expand(hostlist: str) -> list[str]:
    """Return the names of a hostlist, sorted.

    Raises:
        ValueError: it is none.

    """
    if hostlist and "[" not in hostlist and "," not in hostlist:
        # One name, as each of thousands of jobs has: a NodeSet of it costs a hundred times as much.
        return [hostlist]
    try:
        _refuse_large(hostlist)
        return list(NodeSet(hostlist, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError) as error:
        shown = hostlist if len(hostlist) <= SHOWN else f"{hostlist[:SHOWN]}..."
        raise ValueError(f"{shown!r} is no hostlist: {error}") from error


def _refuse_large(hostlist: str) -> None:
    """Count the names of a hostlist, without making them.

    Raises:
        ValueError: there are more than `MOST_NAMES`, or its brackets are wrong.

    """
    total, product, brackets, boxes = 0, 1, 0, 0
    inside: int | None = None
    for word in _WORD.findall(hostlist):
        if word == "[" and inside is None:
            inside = 0
        elif word == "]" and inside:
            product, inside = product * inside, None
            brackets += 1
            boxes += brackets == 2
        elif word == "," and inside is None:
            total, product, brackets = total + product, 1, 0
        elif word != "," and inside is not None:
            ends = _RANGE.fullmatch(word)
            if ends is None:
                raise ValueError(f"{word[:SHOWN]!r} is no range")
            inside += max(1, int(ends[2] or ends[1]) - int(ends[1]) + 1)
        elif word in "[]":
            raise ValueError("its brackets do not match")
        if total + product > MOST_NAMES:
            raise ValueError(f"it has more than {MOST_NAMES} names")
        if boxes > MOST_BOXES:
            raise ValueError(f"more than {MOST_BOXES} of its names have two brackets")
    if inside is not None:
        raise ValueError("its brackets do not match")
