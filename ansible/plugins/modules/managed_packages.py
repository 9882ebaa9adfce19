#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Report which of the wanted packages are missing; the action plugin installs them by apt."""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run
from ansible_collections.muster.slurm.plugins.module_utils.installed_packages import (
    LOCK_TIMEOUT_S,
    installed,
    missing,
)

DOCUMENTATION = r"""
module: managed_packages
short_description: Install packages without what they recommend and without starting them
description:
  - The one way in which roles install packages of the distribution.
  - Asks dpkg first, which finds in a tenth of apt's time that nothing has to be done. After
    M(muster.slurm.host_facts) in the same run of ansible-playbook it asks only where something is missing.
    What is missing is installed by M(ansible.builtin.apt) in one transaction, without recommended
    packages; no daemon starts before it was configured, and no other package is removed.
options:
  names:
    description: Packages, or C(package=version) with C(*) in the version.
    type: list
    elements: str
    required: true
  file:
    description:
      - Package that is in no archive, C(NAME_VERSION_ARCHITECTURE.deb) on the machine that runs the
        play. It is one of O(names), with its version.
      - The others of O(names) must be there, or the task fails. They are those that it depends on
        in one version alone, which apt's module does not see to and dpkg finds out too late.
    type: path
  replaces:
    description: Packages that these replace; apt may remove packages where one is there.
    type: list
    elements: str
    default: []
  held:
    description:
      - Whether apt leaves those of O(names) that have a version as they are, also when a person runs it
        (C(apt-mark hold)). Another version in O(names) still takes their place, a lower one too.
    type: bool
    default: false
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Install munge
  muster.slurm.managed_packages:
    names: [munge]
"""

RETURN = r"""
held:
  description: The packages that were put on hold.
  type: list
  elements: str
  returned: when nothing was installed
missing:
  description: The wanted packages that were not installed in the wanted version.
  type: list
  elements: str
  returned: when nothing was installed
replaced:
  description: Those of I(replaces) that are installed.
  type: list
  elements: str
  returned: when nothing was installed
"""


def not_held(names: list[str]) -> list[str]:
    """Return those of `names` that are not on hold."""
    _, out, _ = run(["apt-mark", "showhold", *names])
    return [name for name in names if name not in out.split()]


def hold(module: AnsibleModule, names: list[str]) -> None:
    """Put packages on hold, when no other program uses dpkg any more: apt-mark does not wait."""
    end = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        code, _, said = run(["apt-mark", "hold", *names], environ={"LC_ALL": "C.UTF-8"})
        if code == 0:
            return
        if "lock was locked by" not in said or time.monotonic() > end:
            remedy = f"run `apt-mark hold {' '.join(names)}`, then this again"
            module.fail_json(f"{said.strip()}; {remedy}")
        time.sleep(1)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "file": {"type": "path"},
            "replaces": {"type": "list", "elements": "str", "default": []},
            "held": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    names: list[str] = module.params["names"]
    wanted = [name.partition("=")[::2] for name in names]
    absent = missing(names, installed([name for name, _ in wanted]))
    # Asked only where something has to be installed: a second run asks dpkg only once.
    old = module.params["replaces"] if absent else []
    replaced = sorted(installed(old)) if old else []
    # Missing ones are held when the action plugin runs this module again after apt.
    pinned = [name for name, version in wanted if version]
    held = not_held(pinned) if module.params["held"] and pinned and not absent else []
    if held and not module.check_mode:
        hold(module, held)
    module.exit_json(changed=bool(held), held=held, missing=absent, replaced=replaced)


if __name__ == "__main__":
    main()
