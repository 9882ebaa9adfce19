# SPDX-License-Identifier: Apache-2.0
"""Refuses options of ansible-playbook that leave out the play that makes the role variables."""

from collections.abc import Mapping
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.vars import BaseVarsPlugin

DOCUMENTATION = r"""
name: whole_run
short_description: Refuses runs without their first play
description:
  - A role without the variables of the definition would take its own defaults. For some of them
    that means to remove people, addresses and modulefiles.
  - So C(--start-at-task), C(--step) and C(--skip-tags always) are refused. It gives no variables.
options: {}
"""


def refused(options: Mapping[str, Any]) -> str:
    """Return the first of the options that leave out the first play, "" if there is none."""
    if options.get("start_at_task"):
        return "--start-at-task"
    if options.get("step"):
        return "--step"
    return "--skip-tags always" if "always" in (options.get("skip_tags") or ()) else ""


class VarsModule(BaseVarsPlugin):
    """Gives no variables; Ansible asks it before the first play."""

    def get_vars(self, loader: object, path: str, entities: object) -> dict[str, Any]:
        """Return nothing.

        Raises:
            AnsibleError: the run would leave out the first play.

        """
        super().get_vars(loader, path, entities)
        if option := refused(context.CLIARGS):
            raise AnsibleError(
                f"{option} would leave out the play that makes the variables of all roles, and "
                "they would run with their defaults; choose with --tags and --limit instead"
            )
        return {}
