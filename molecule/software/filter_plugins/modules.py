"""What a definition gives the role."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from muster.definition import validate
from muster.render import lmod


def module_tree(cluster: dict[str, Any], groups: dict[str, list[str]]) -> dict[str, Any]:
    """Return the module tree as a mapping."""
    valid = validate(cluster, groups).cluster
    return asdict(lmod.render(valid.software, valid.storage.apps.path, valid.os, {}))


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"module_tree": module_tree}
