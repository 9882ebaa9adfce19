# SPDX-License-Identifier: Apache-2.0
"""Which packages a host has, and which of the wanted ones are missing there."""

import fnmatch
from collections.abc import Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

LOCK_TIMEOUT_S = 300
"""How long an installation waits for another program that uses dpkg."""


def installed(module: AnsibleModule, names: Sequence[str] = ()) -> dict[str, str]:
    """Return package -> version of those of `names` that are installed; without any, of all."""
    # Exit code 1 says that dpkg does not know one of them: no error here.
    _, out, _ = module.run_command(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status} ${Version}\n", *names]
    )
    rows = (line.split() for line in out.splitlines())
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}


def missing(wanted: Sequence[str], there: Mapping[str, str]) -> list[str]:
    """Return those of `wanted`, PACKAGE or PACKAGE=VERSION, that are not among the packages `there`."""
    pairs = [name.partition("=")[::2] for name in wanted]
    return [
        f"{name}={version}" if version else name
        for name, version in pairs
        if name not in there or (version and not fnmatch.fnmatch(there[name], version))
    ]
