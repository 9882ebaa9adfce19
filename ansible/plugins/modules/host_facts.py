#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Gather the facts that the roles use, and the installed packages."""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.sys_info import (
    get_distribution,
    get_distribution_codename,
    get_distribution_version,
)
from ansible_collections.muster.slurm.plugins.module_utils.installed_packages import installed

DOCUMENTATION = r"""
module: host_facts
short_description: The facts that the roles use, and the installed packages, in one run
description:
  - Sets C(ansible_facts) as M(ansible.builtin.setup) does, but only those that the roles use.
  - Fails on a system that Muster does not configure, such as Rocky Linux, before anything else is tried there.
  - Asks dpkg for all packages. The action plugin of the same name keeps the answer until the end of the run of
    ansible-playbook, and C(managed_packages) asks the host again only where something is missing.
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Gather facts
  muster.slurm.host_facts:
"""

RETURN = r"""
ansible_facts:
  description: distribution, distribution_version, distribution_major_version and distribution_release.
  type: dict
  returned: always
"""


SYSTEMS = ("Debian", "Ubuntu")
"""The role base says which of their releases the cluster has."""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    version: str = get_distribution_version() or ""
    if get_distribution() not in SYSTEMS:
        module.fail_json(
            msg=f"this host runs {get_distribution()} {version}, which Muster does not configure; "
            "install Debian 12 or 13 on it, or take it out of hosts.yml"
        )
    module.exit_json(
        changed=False,
        ansible_facts={
            "distribution": get_distribution(),
            "distribution_version": version,
            "distribution_major_version": version.partition(".")[0],
            "distribution_release": get_distribution_codename(),
        },
        packages=installed(),
    )


if __name__ == "__main__":
    main()
