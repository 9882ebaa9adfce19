# SPDX-License-Identifier: Apache-2.0
"""Have apt install what the module managed_packages finds missing."""

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.muster.slurm.plugins.module_utils.installed_packages import (
    LOCK_TIMEOUT_S,
    missing,
)
from ansible_collections.muster.slurm.plugins.plugin_utils.package_readings import (
    drop,
    keep,
    reading,
)

APT_OPTIONS = {
    "install_recommends": False,
    # No daemon starts before its role has configured it.
    "policy_rc_d": 101,
    # Nothing that somebody else installed is taken off the host in passing.
    "fail_on_autoremove": True,
    "update_cache": True,
    "cache_valid_time": 86400,
    "lock_timeout": LOCK_TIMEOUT_S,
}


class ActionModule(ActionBase):
    """Ask dpkg, then apt."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module and, for what is missing, ansible.builtin.apt."""
        super().run(tmp, task_vars)
        names = self._task.args.get("names")
        host = self._task.delegate_to or (task_vars or {})["inventory_hostname"]
        there = reading(host)
        # What is to be on hold, the reading doesn't tell.
        is_there = (
            there is not None
            and not self._task.args.get("held")
            and not missing(names or [], there)
        )
        if not names or is_there:
            return {"changed": False, "missing": []}
        result: dict[str, Any] = self._execute_module(
            module_args=self._task.args, task_vars=task_vars
        )
        if result.get("failed") or not result["missing"]:
            return result
        file, held = self._task.args.get("file"), self._task.args.get("held")
        if not self._task.check_mode:
            # Even if apt fails, it may have changed something before.
            drop(host)
        if file:
            name = Path(file).name
            needed = [
                need for need in result["missing"] if need.split("=")[0] != name.split("_")[0]
            ]
            if self._task.check_mode:
                # A task before would have installed what it needs.
                return {**result, "changed": True}
            if needed:
                return {"failed": True, "msg": f"{name} needs {' and '.join(needed)}"}
            options = {"deb": self._sent(file), **APT_OPTIONS}
        else:
            options = {"name": result["missing"], **APT_OPTIONS}
        if result["replaced"]:
            options["fail_on_autoremove"] = False
        if held:
            options |= {"allow_change_held_packages": True, "allow_downgrade": True}
        installed: dict[str, Any] = self._execute_module(
            module_name="ansible.builtin.apt", module_args=options, task_vars=task_vars
        )
        if there is not None and not installed.get("failed"):
            self._read_again(host, there, result["missing"], task_vars)
        if held and not installed.get("failed") and not self._task.check_mode:
            marked: dict[str, Any] = self._execute_module(
                module_args=self._task.args, task_vars=task_vars
            )
            if marked.get("failed"):
                return marked
        return installed

    def _read_again(
        self,
        host: str,
        before: dict[str, str],
        installed: list[str],
        task_vars: dict[str, Any] | None,
    ) -> None:
        """Take a reading for the tasks that follow; in check mode, of what would be there."""
        if self._task.check_mode:
            keep(host, before | dict(name.partition("=")[::2] for name in installed))
            return
        facts: dict[str, Any] = self._execute_module(
            module_name="muster.slurm.host_facts", module_args={}, task_vars=task_vars
        )
        if "packages" in facts:
            keep(host, facts["packages"])

    def _sent(self, file: str) -> str:
        """Return where the host has `file` until the task ends."""
        shell = self._connection._shell
        if shell.tmpdir is None:
            # Only now: it is a round trip, and most runs install nothing.
            self._make_tmp_path()
        sent: str = shell.join_path(shell.tmpdir, Path(file).name)
        self._transfer_file(file, sent)
        self._fixup_perms2((shell.tmpdir, sent))
        return sent
