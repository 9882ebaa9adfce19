# SPDX-License-Identifier: Apache-2.0
"""Which packages a host has, and which of the wanted ones are missing there."""

import fnmatch
from collections.abc import Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

LOCK_TIMEOUT_S = 300
"""How long an installation waits for another program that uses dpkg."""


def installed(names: Sequence[str] = ()) -> dict[str, str]:
    """Return package -> version of those of `names` that are installed; without any, of all."""
    # Exit code 1 says that dpkg does not know one of them: no error here.
    _, out, _ = run(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status} ${Version}\n", *names]
    )
    rows = (line.split() for line in out.splitlines())
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}


def provided() -> dict[str, str]:
    """Return package -> version of all that is installed, under each name that apt knows it by.

    They are PACKAGE, PACKAGE:ARCHITECTURE, and what the package provides. A provided name without a
    version has an empty one.
    """
    # A name that is only provided can't be asked for.
    form = r"${Package}\t${Architecture}\t${db:Status-Status}\t${Version}\t${Provides}\n"
    _, out, _ = run(["dpkg-query", "--show", f"--showformat={form}"])
    rows = [row for line in out.splitlines() if (row := line.split("\t"))[2] == "installed"]
    # What is for all architectures apt takes for one of the host's own, which dpkg has too.
    own = next((row[1] for row in rows if row[0] == "dpkg"), "all")
    real: dict[str, str] = {}
    virtual: dict[str, str] = {}
    for package, architecture, _, version, provides in rows:
        of = own if architecture == "all" else architecture
        real |= {package: version, f"{package}:{of}": version}
        for entry in filter(None, provides.split(", ")):
            # NAME or NAME (= VERSION)
            name, _, rest = entry.partition(" (= ")
            virtual |= {name: rest.rstrip(")"), f"{name}:{of}": rest.rstrip(")")}
    return virtual | real


def missing(wanted: Sequence[str], there: Mapping[str, str]) -> list[str]:
    """Return those of `wanted`, PACKAGE or PACKAGE=VERSION, that are not among the packages `there`."""
    pairs = [name.partition("=")[::2] for name in wanted]
    return [
        f"{name}={version}" if version else name
        for name, version in pairs
        if name not in there or (version and not fnmatch.fnmatch(there[name], version))
    ]


def refuse_missing(module: AnsibleModule, names: Sequence[str]) -> None:
    """End the task where a package of `names`, PACKAGE or PACKAGE=VERSION, is missing.

    They are those that modules need to run. Where apt would install nothing more, none is missing. In
    check mode it warns: the run may install them before.
    """
    lacking = missing(names, provided()) if names else []
    if not lacking:
        return
    sentence = (
        f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed on this host, "
        "which modules need to run here and where jobs run; run site.yml with "
        "`--tags lmod_install` and without `--limit`, which installs what is missing on all these "
        "hosts, then this again"
    )
    if not module.check_mode:
        module.fail_json(msg=sentence)
    module.warn(sentence)
