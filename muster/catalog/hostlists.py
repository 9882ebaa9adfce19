"""Hostlists: `lab-gpu-[01-02]` for many names, in the form that SLURM reads."""

from collections.abc import Iterable
from functools import lru_cache

# Hostlists have host names only: "@" must not make ClusterShell read the machine's group files.
from ClusterShell.NodeSet import (  # type: ignore[import-untyped]
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
)


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
        return list(NodeSet(hostlist, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ValueError(f"{hostlist!r} is no hostlist: {error}") from error
