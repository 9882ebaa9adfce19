"""What tests of the roles' files share."""

from collections.abc import Iterator
from typing import Any

OF_A_CLUSTER = {"verify"}
"""Roles that need a whole cluster: their tests are in tests/live."""

LISTS = ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks", "handlers")


def tasks_in(entries: Any) -> Iterator[dict[str, Any]]:
    """Yield all tasks of task files and of plays, those in blocks too."""
    for entry in entries if isinstance(entries, list) else []:
        for part in LISTS:
            yield from tasks_in(entry.get(part))
        if not {"block", "hosts"} & entry.keys():
            yield entry
