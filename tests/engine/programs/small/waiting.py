"""A dynamic resource that takes time, like an image's build or a first boot.

If WAIT_FILE names a file, the resource is created only once that file exists.
"""

import os
import time
import uuid
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic


class WaitProvider(dynamic.ResourceProvider):
    """Replaced when the digest changes."""

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        print(f"waiting for {props['digest']}", flush=True)  # noqa: T201
        file = os.environ.get("WAIT_FILE")
        until = time.monotonic() + 60
        while file and not Path(file).exists():
            if time.monotonic() > until:
                raise TimeoutError(f"{file} is not there after 60 s")
            time.sleep(0.05)
        return dynamic.CreateResult(uuid.uuid4().hex, props)

    def diff(self, _id: str, old: dict[str, Any], new: dict[str, Any]) -> dynamic.DiffResult:
        changed = old["digest"] != new["digest"]
        return dynamic.DiffResult(
            changes=changed, replaces=["digest"] if changed else [], delete_before_replace=False
        )


class Wait(dynamic.Resource):
    """Waits once for each digest."""

    digest: pulumi.Output[str]

    def __init__(
        self, name: str, digest: pulumi.Input[str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(WaitProvider(), name, {"digest": digest}, opts)
