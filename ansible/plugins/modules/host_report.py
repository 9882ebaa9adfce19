#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Report what the last play compares between hosts. Changes nothing."""

import json
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.sys_info import get_distribution_version
from ansible_collections.muster.slurm.plugins.module_utils.commands import NO_PROGRAM, run

DOCUMENTATION = r"""
module: host_report
short_description: Report a host's daemons, credential, clock and versions
description:
  - One run per host gathers all that C(muster.verify.verdict) judges. The action plugin of the same name
    adds between which two moments of the control machine the host's clock was read.
options:
  units:
    description: Units that must be active.
    type: list
    elements: str
    required: true
  commands:
    description: Programs that must end with 0, with their arguments.
    type: list
    elements: list
    default: []
  package_patterns:
    description: Packages (as dpkg-query patterns) to report.
    type: list
    elements: str
    default: ["slurm*", "munge*", "nvidia*", "cuda*", "openmpi*", "mpich*", "ucx*", "lib*"]
  module_packages:
    description: Packages that modules need at run time.
    type: list
    elements: str
    default: []
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Report this host
  muster.slurm.host_report:
    units: [munge, slurmd]
"""

RETURN = r"""
report:
  description:
    - inactive (unit -> state), failed (what the programs that failed printed), credential, clock (seconds since the epoch), system, kernel,
      driver (the version of NVIDIA's kernel module that is loaded, or none), python (the version of the
      distribution's interpreter, or none), packages (name -> version), module_packages (the same, null for one
      that is missing), updates (of packages that are kept from unattended upgrades, each with package,
      installed, version, archive, security), time_sources (address -> the state that C(chronyc sources) prints, C(*) for
      the one that is followed; null where chronyd does not answer).
  type: dict
  returned: always
"""


PYTHON = "/usr/bin/python3"

PACKAGE_PATTERNS = ["slurm*", "munge*", "nvidia*", "cuda*", "openmpi*", "mpich*", "ucx*", "lib*"]


def unit_states(units: list[str]) -> dict[str, str]:
    """Return the units that are not active, with their state."""
    states = {}
    for unit in units:
        _, out, _ = run(["systemctl", "is-active", unit])
        if out.strip() != "active":
            states[unit] = out.strip() or "not installed"
    return states


def failed(commands: list[list[str]]) -> list[str]:
    """Return what those of the programs printed that did not end with 0."""
    texts = []
    for command in commands:
        code, out, err = run(command)
        if code == NO_PROGRAM and not out:
            texts.append(f"{err}; run site.yml, which installs it")
        elif code != 0:
            texts.append(out.strip() or err.strip() or f"{' '.join(command)} ended with {code}")
    return texts


def credential() -> dict[str, str]:
    """Return a fresh munge credential, or what munge says instead."""
    code, out, err = run(["munge", "--no-input"])
    if code != 0:
        return {"error": err.strip()}
    return {"text": out.strip()}


def packages(patterns: list[str]) -> dict[str, str]:
    """Return the installed packages that match `patterns`, with their versions."""
    # Exit code 1 says that one of the patterns matched nothing: no error here.
    _, out, _ = run(
        ["dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Package} ${Version}\n", *patterns]
    )
    rows = (line.split() for line in out.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "ii"}


def driver(version: str = "/sys/module/nvidia/version") -> str:
    """Return the version of NVIDIA's kernel module that is loaded, or `none`."""
    try:
        with open(version, encoding="utf-8") as stream:
            return stream.read().strip()
    except FileNotFoundError:
        return "none"


def python() -> str:
    """Return the version of the distribution's interpreter, or `none`."""
    # Not `sys.version`: the inventory may name another interpreter for Ansible.
    _, out, _ = run([PYTHON, "--version"])
    return out.strip().removeprefix("Python ") or "none"


def updates(module: AnsibleModule) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the newer versions of kept packages, or a sentence that says why they are not known."""
    program = module.get_bin_path("muster-updates", opt_dirs=["/usr/local/sbin"])
    if program is None:
        return [], []  # without the role base
    code, out, err = run([program, "--json"])
    if code != 0:
        return [], [f"muster-updates failed: {err.strip()}; run it there: {program}"]
    return json.loads(out)["updates"], []


def time_sources(module: AnsibleModule) -> dict[str, str] | None:
    """Return chronyd's sources with the state of each; None where chronyd does not answer."""
    chronyc = module.get_bin_path("chronyc")
    if chronyc is None:
        return None
    code, out, _ = run([chronyc, "-n", "-c", "sources"])
    if code != 0:
        return None
    rows = (line.split(",") for line in out.splitlines())
    # Mode (server, peer, reference clock), state, address, stratum and more.
    return {row[2]: row[1] for row in rows if len(row) > 2}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "required": True},
            "commands": {"type": "list", "elements": "list", "default": []},
            "package_patterns": {
                "type": "list",
                "elements": "str",
                "default": PACKAGE_PATTERNS,
            },
            "module_packages": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    clock = time.time()
    pending, unknown = updates(module)
    needed: list[str] = module.params["module_packages"]
    there = packages(needed) if needed else {}
    module.exit_json(
        changed=False,
        report={
            "clock": clock,
            "inactive": unit_states(module.params["units"]),
            "failed": [*failed(module.params["commands"]), *unknown],
            "credential": credential(),
            "system": get_distribution_version(),
            "kernel": os.uname().release,
            "driver": driver(),
            "python": python(),
            "packages": packages(module.params["package_patterns"]),
            "module_packages": {name: there.get(name) for name in needed},
            "updates": pending,
            "time_sources": time_sources(module),
        },
    )


if __name__ == "__main__":
    main()
