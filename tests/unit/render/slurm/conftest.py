"""A small lab to change in tests: two node sets, two partitions, accounting."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from muster.definition import Definition, validate

LAB: dict[str, Any] = {
    "cluster": {
        "name": "lab",
        "os": "debian-12",
        "users": {
            "groups": {"ml-users": {"gid": 20000}},
            "people": {"ada": {"uid": 20001, "groups": ["ml-users"]}},
        },
        "nodes": {
            "cpu": {
                "sockets": 2,
                "cores_per_socket": 12,
                "threads_per_core": 2,
                "memory_mib": 122880,
            },
            "gpu": {
                "sockets": 2,
                "cores_per_socket": 12,
                "threads_per_core": 2,
                "memory_mib": 122880,
                "features": ["rtx4080"],
                "gpus": {"count": 4},
            },
        },
        "partitions": {
            "ml-cpu": {
                "nodes": ["cpu"],
                "default": True,
                "max_time": "5-00:00:00",
                "default_time": "04:00:00",
                "groups": ["ml-users"],
            },
            "ml-gpu": {
                "nodes": ["gpu"],
                "max_time": "5-00:00:00",
                "default_time": "04:00:00",
                "groups": ["ml-users"],
            },
        },
        "accounts": {"LAB-test": {"users": ["ada"]}},
        "mail": {"relay": "smtp.example.org", "domain": "example.org"},
    },
    "groups": {
        "controller": ["lab-access"],
        "database": ["lab-access"],
        "login": ["lab-access"],
        "cpu": ["lab-cpu-01", "lab-cpu-02"],
        "gpu": ["lab-gpu-01", "lab-gpu-02"],
    },
}


def patched(value: Any, patch: Any) -> Any:
    """Return `value` with a merge patch of RFC 7396 applied: null removes a key."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(value) if isinstance(value, dict) else {}
    for key, below in patch.items():
        if below is None:
            merged.pop(key, None)
        else:
            merged[key] = patched(merged.get(key), below)
    return merged


@pytest.fixture(scope="session")
def lab() -> Callable[..., Definition]:
    """Make the lab's definition, with changes to `cluster` and to the groups of hosts."""

    def make(
        cluster: dict[str, Any] | None = None,
        groups: dict[str, Any] | None = None,
        version: str | None = None,
    ) -> Definition:
        data = patched(LAB, {"cluster": cluster or {}, "groups": groups or {}})
        if version:
            data["cluster"]["slurm_version"] = version
            if version == "21.08":  # older than Debian 12's own
                data["cluster"]["os"] = "ubuntu-22.04"
        sets = data["cluster"]["nodes"]
        data["groups"]["compute"] = [host for name in sets for host in data["groups"][name]]
        return validate(data["cluster"], data["groups"])

    return make
