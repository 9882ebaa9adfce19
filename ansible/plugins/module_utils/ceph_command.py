# SPDX-License-Identifier: Apache-2.0
"""The `ceph` command of a storage host, and what a device holds: shared by Muster's Ceph modules."""

import json
import shutil
from typing import Any

from ansible_collections.muster.slurm.plugins.module_utils.commands import run

CONNECT_SECONDS = 60
"""How long monitors may take to answer: after their start they elect a leader first."""

COMMAND_SECONDS = 120


class CephError(Exception):
    """What can't be done, said in a sentence."""


class Ceph:
    """The `ceph` command as one of the cluster's users; keys never are among its arguments."""

    def __init__(self, name: str = "client.admin", keyring: str | None = None) -> None:
        self.user = ["--name", name, *(["--keyring", keyring] if keyring else [])]

    @classmethod
    def for_monitor(cls, monitor: str | None) -> "Ceph":
        """Return the command as a monitor of this host, or as the administrator without one."""
        if not monitor:
            return cls()
        return cls("mon.", f"/var/lib/ceph/mon/ceph-{monitor}/keyring")

    def run(self, *words: str, data: str | None = None) -> str:
        """Return what the command prints.

        Raises:
            CephError: it failed, or no monitor answered.

        """
        if shutil.which("ceph") is None:
            raise CephError("no `ceph` command on this host; install ceph-common first")
        code, out, err = run(
            [
                *("timeout", str(COMMAND_SECONDS), "ceph"),
                *("--connect-timeout", str(CONNECT_SECONDS), *self.user, *words),
            ],
            data=data,
        )
        if code == 124 or "timed out" in err or "Cluster connection aborted" in err:
            raise CephError(
                f"no quorum of monitors answered `ceph {words[0]}` within {CONNECT_SECONDS} s: most "
                "of the addresses at mon_host in /etc/ceph/ceph.conf must be up and reach each "
                "other on ports 3300 and 6789; see systemctl status 'ceph*mon*' on their hosts"
            )
        if code != 0:
            raise CephError(f"`ceph {' '.join(words)}` as {self.user[1]}: {err.strip()}")
        return out

    def ask(self, *words: str, data: str | None = None) -> Any:
        """Return what the command answers, as data of Ceph's own shape."""
        return json.loads(self.run(*words, "--format", "json", data=data))
