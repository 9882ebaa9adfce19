# SPDX-License-Identifier: Apache-2.0
"""What `muster-software list` prints."""

import os
import time
from collections.abc import Iterator
from typing import Any

from muster_software.releases import of_module, published, releases
from muster_software.settings import Settings


def shown(settings: Settings) -> Iterator[str]:
    """Yield the lines that `list` prints: each module, and its releases from the oldest on."""
    found = releases(settings)
    for module in sorted({*settings.wanted, *(release.module for release in found.values())}):
        yield module
        users = published(settings, module, found)
        wanted = settings.wanted.get(module)
        for release in of_module(module, found):
            built = time.strftime("%Y-%m-%d %H:%M", time.localtime(release.built_at))
            notes = ["users load it"] if release == users else []
            notes += ["the definition asks for it"] if release.root == wanted else []
            notes += ["squashfs"] if release.is_packed else []
            yield f"  {release.name}  {built}  {', '.join(notes)}".rstrip()
        if wanted is not None and wanted not in found:
            yield f"  {os.path.basename(wanted)}  not built         the definition asks for it"


def report(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return what `list --json` prints: of each module its releases, from the oldest on."""
    found = releases(settings)
    modules = {}
    for module in sorted({*settings.wanted, *(release.module for release in found.values())}):
        users = published(settings, module, found)
        modules[module] = {
            "published": users.root if users else None,
            "releases": [release.root for release in of_module(module, found)],
        }
    return modules
