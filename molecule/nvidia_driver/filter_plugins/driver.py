"""What a definition gives the role on the nodes of a set."""

from collections.abc import Callable
from typing import Any

from muster.definition import validate
from muster.render.nvidia_driver import variables


def driver_of(
    cluster: dict[str, Any], groups: dict[str, list[str]], node_set: str
) -> dict[str, Any]:
    """Return the role's variables without their prefix."""
    return variables(validate(cluster, groups), node_set)


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"driver_of": driver_of}
