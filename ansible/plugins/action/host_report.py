# SPDX-License-Identifier: Apache-2.0
"""Run a module that reports, and note between which two moments the host's clock was read.

For host_report and, by a link, for hardware_report.
"""

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Add `earliest` and `latest`: the control machine's clock before and after."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module."""
        super().run(tmp, task_vars)
        # With -vvv ssh's plugin prints what it gets, unless told not to (_ssh_retry in ssh.py). Errors
        # are in the result.
        self._connection._play_context.no_log = True
        earliest = time.time()
        result: dict[str, Any] = self._execute_module(
            module_args=self._task.args, task_vars=task_vars
        )
        if "report" in result:
            result["report"] |= {"earliest": earliest, "latest": time.time()}
            # A credential of root, which slurmctld would take from anybody for five minutes. A result
            # without a report is an error, which must be shown.
            result["_ansible_no_log"] = "credential" in result["report"]
        return result
