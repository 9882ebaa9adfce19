# SPDX-License-Identifier: Apache-2.0
"""Gather facts, and keep what dpkg said for the rest of the run."""

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.muster.slurm.plugins.plugin_utils.package_readings import keep


class ActionModule(ActionBase):
    """Take the packages out of the result: hundreds, which nobody wants to read."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module."""
        super().run(tmp, task_vars)
        result: dict[str, Any] = self._execute_module(task_vars=task_vars)
        if "packages" in result:
            keep((task_vars or {})["inventory_hostname"], result.pop("packages"))
        return result
