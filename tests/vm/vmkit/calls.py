"""A client's calls to an NFS server, as its kernel counts them."""

import re
from collections import Counter

from vmkit.machine import Machine


def calls(client: Machine, path: str) -> Counter[str]:
    """Return the calls by operation (READ, LOOKUP, ...) since the folder at `path` was mounted.

    READ_PLUS, with which newer kernels read (RFC 7862), is READ too.

    From /proc/self/mountstats, "per-op statistics"; the first number of a line is how many.
    """
    table = client.check("cat /proc/self/mountstats")
    of_path = table.partition(f" mounted on {path} ")[2].partition("\ndevice ")[0]
    lines = of_path.partition("per-op statistics")[2]
    counts = Counter(
        {name: int(count) for name, count in re.findall(r"^\s*(\w+): (\d+)", lines, re.M)}
    )
    assert "READ" in counts, table
    counts["READ"] += counts.pop("READ_PLUS", 0)
    return counts
