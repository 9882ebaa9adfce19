# SPDX-License-Identifier: Apache-2.0
"""Where the log of a build is: what the module `software_build` and the role `software` share.

The role installs this file on hosts: it uses the standard library alone.
"""

FOLDER = "/var/log/muster-build"
"""Root alone reads it."""


def log_of(root: str) -> str:
    """Return the path of the log of what is built in the folder `root`."""
    return f"{FOLDER}/{root.strip('/').replace('/', '_')}.log"
