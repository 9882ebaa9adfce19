"""A faster autoscaler for tests: all its times are divided by one number."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

import muster.autoscaler
from muster.autoscaler import daemon
from muster.autoscaler.compute import api_client, credentials
from muster.autoscaler.reconcile import observed

SPEED = 15
T = TypeVar("T")


def divided(times: T) -> T:
    """Return a copy of a dataclass with its members called `*_s` divided."""
    quick = {
        field.name: getattr(times, field.name) / SPEED
        for field in fields(times)  # type: ignore[arg-type]
        if field.name.endswith("_s")
    }
    return replace(times, **quick)  # type: ignore[type-var]


PACE = divided(daemon.Pace())
LIMITS = divided(observed.Limits())
DRIVER_LIMITS = replace(
    divided(api_client.Limits()),
    per_minute=api_client.Limits().per_minute * SPEED,
    # A busy machine doesn't answer faster.
    try_s=2,
)


def hurry(put: Callable[[object, str, object], None] = setattr) -> None:
    """Divide the constants called `*_S` of all modules; `put` may be a monkeypatch's `setattr`."""
    # Imported before the first one changes: a constant may be another module's too.
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(muster.autoscaler.__path__, "muster.autoscaler.")
        # A busy machine doesn't answer faster.
        if info.name.rpartition(".")[2] not in ("__main__", "metadata")
    ]
    for module in modules:
        for name, value in vars(module).items():
            if name.endswith("_S") and isinstance(value, int | float):
                put(module, name, value / SPEED)
            elif name.endswith("_S") and isinstance(value, tuple):
                put(module, name, tuple(seconds / SPEED for seconds in value))
    # A token lasts for seconds, so it must be renewed less than a second ahead.
    put(credentials, "AHEAD_S", 0.3)
