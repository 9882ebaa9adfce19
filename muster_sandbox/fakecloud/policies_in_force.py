"""Which policy of a resource is in force: a change takes effect late.

https://cloud.google.com/iam/docs/access-change-propagation: mostly within two minutes, sometimes
seven or more. `Settings.grant_seconds` says how late here. A policy is read as it was written at
once; only what it grants comes later, and what it no longer grants goes later.
"""

from collections import deque
from typing import Any
from weakref import WeakKeyDictionary

from muster_sandbox.fakecloud.cloud import Cloud

_changes: WeakKeyDictionary[Cloud, dict[str, deque[tuple[float, Any]]]] = WeakKeyDictionary()
"""Resource -> its changes that are not in force yet: when each will be, and the policy before."""


def changed(cloud: Cloud, name: str, before: Any) -> None:
    """Note that a resource gets another policy than `before` (None: it had none) now."""
    if cloud.settings.grant_seconds:
        waiting = _changes.setdefault(cloud, {}).setdefault(name, deque())
        waiting.append((cloud.clock.now() + cloud.settings.grant_seconds, before))


def forget(cloud: Cloud, name: str) -> None:
    """Forget the changes of a resource that is deleted: its successor may have the same name."""
    _changes.get(cloud, {}).pop(name, None)


def in_force(cloud: Cloud, name: str, written: Any) -> Any:
    """The policy of a resource that is in force, given the one that was written last."""
    of_cloud = _changes.get(cloud)
    waiting = of_cloud.get(name) if of_cloud else None
    if not waiting:
        return written
    now = cloud.clock.now()
    while waiting and waiting[0][0] <= now:
        waiting.popleft()
    return waiting[0][1] if waiting else written
