# SPDX-License-Identifier: Apache-2.0
"""What the role `software` has written for this program."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from muster_build.errors import RefusedError

SETTINGS = "/etc/muster/software.json"
"""Of the role: the shared folder, and the release of each module that the definition asks for."""


@dataclass(frozen=True)
class Settings:
    """What the role has written."""

    apps: str
    wanted: Mapping[str, str]
    """Module -> folder of the release that the definition asks for."""

    @property
    def modules(self) -> str:
        """The tree of modulefiles."""
        return f"{self.apps}/modules"

    @property
    def images(self) -> str:
        """Folder of the files that releases are packed into, each called by its release's name."""
        return f"{self.apps}/.muster/images"


def read_settings() -> Settings:
    """Return what the role has written. Raises RefusedError."""
    try:
        with open(SETTINGS, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        raise RefusedError(
            f"there is no {SETTINGS}; run site.yml, whose role software writes it on the controller"
        ) from None
    return Settings(data["root"], data["wanted"])
