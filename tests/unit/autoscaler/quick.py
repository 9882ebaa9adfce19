"""The autoscaler's day in minutes: all its times are divided by one number."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

import muster.autoscaler
from muster.autoscaler import daemon
from muster.autoscaler.compute import credentials, http
from muster.autoscaler.reconcile import observed

SPEED = 15
T = TypeVar("T")


def divided(times: T) -> T:
    """A dataclass whose members called `*_s` are divided."""
    quick = {
        each.name: getattr(times, each.name) / SPEED
        for each in fields(times)  # type: ignore[arg-type]
        if each.name.endswith("_s")
    }
    return replace(times, **quick)  # type: ignore[type-var]


PACE = divided(daemon.Pace())
LIMITS = divided(observed.Limits())
EDGE = replace(
    divided(http.Limits()),
    per_minute=http.Limits().per_minute * SPEED,
    # Answers of a busy machine are no faster for it.
    try_s=2,
)


def hurry(put: Callable[[object, str, object], None] = setattr) -> None:
    """Divide the constants called `*_S` of all modules; a test puts them by its monkeypatch."""
    for found in pkgutil.iter_modules(muster.autoscaler.__path__):
        if found.name in ("__main__", "metadata"):
            # Answers of a busy machine are no faster for it.
            continue
        module = importlib.import_module(f"muster.autoscaler.{found.name}")
        for name, value in vars(module).items():
            if name.endswith("_S") and isinstance(value, int | float):
                put(module, name, value / SPEED)
            elif name.endswith("_S") and isinstance(value, tuple):
                put(module, name, tuple(each / SPEED for each in value))
    # A token lasts for seconds: what renews it minutes ahead would never miss it.
    put(credentials, "AHEAD_S", 0.3)
