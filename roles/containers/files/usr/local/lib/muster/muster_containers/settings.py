# SPDX-License-Identifier: Apache-2.0
"""What the definition says to this program: /etc/muster/containers.json."""

import json
from dataclasses import dataclass

from muster_containers.errors import ContainerError

FILE = "/etc/muster/containers.json"


@dataclass(frozen=True)
class Settings:
    """The store, and what is the same inside of a container and outside."""

    store: str
    mounts: tuple[str, ...]
    """Folders that hosts share: containers see them at the same paths."""
    scratch: str | None
    """Folder on the node's own disk that has a folder for each job; None: jobs use /tmp."""


def read(path: str = FILE) -> Settings:
    """Return the settings of this host. Raises ContainerError where there are none."""
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
        return Settings(given["store"], tuple(given["mounts"]), given["scratch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContainerError(
            f"{path} could not be read ({error}): have an administrator run site.yml on this host"
        ) from error
