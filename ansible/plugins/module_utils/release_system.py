# SPDX-License-Identifier: Apache-2.0
"""What a release was built on: what the module `software_build` and the role `software` share.

The role installs this file on hosts: it uses the standard library alone.
"""

import os
import platform


def this_system() -> str:
    """Return distribution, its version and the architecture of this host: debian 12 x86_64.

    Raises:
        OSError: the host does not say which distribution it has.

    """
    release = platform.freedesktop_os_release()
    return f"{release['ID']} {release.get('VERSION_ID', 'rolling')} {os.uname().machine}"


def other_system(root: str, built_on: str) -> str | None:
    """Return what is wrong with the release `root`, of the system `built_on`, here; None: nothing.

    `built_on` is empty where the release does not say it. Raises OSError.
    """
    here = this_system()
    if built_on == here:
        return None
    if not built_on:
        return f"{root}.json does not say on which system {root} was built, and this is {here}"
    return f"{root} was built on {built_on}, and this is {here}, where its programs may not run"
