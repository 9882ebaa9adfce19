# SPDX-License-Identifier: Apache-2.0
"""Render the templates of a managed_files task on the control side, then run the module once."""

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.template import generate_ansible_template_vars, trust_as_template


class ActionModule(ActionBase):
    """Turn `template:` into `content:`, as ansible.builtin.template would."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module with rendered contents."""
        super().run(tmp, task_vars)
        files = self._task.args.get("files")
        if not isinstance(files, list):
            raise AnsibleActionFail("managed_files: `files` must be a list")
        arguments = dict(self._task.args)
        arguments["files"] = [self._rendered(entry, task_vars or {}) for entry in files]
        result: dict[str, Any] = self._execute_module(
            module_name="muster.slurm.managed_files", module_args=arguments, task_vars=task_vars
        )
        return result

    def _rendered(self, entry: object, task_vars: dict[str, Any]) -> object:
        if not isinstance(entry, dict) or not entry.get("template"):
            return entry
        name = entry["template"]
        source = self._find_needle("templates", name)
        # The path of a template below templates/ is its destination on the host.
        text = trust_as_template(Path(source).read_text(encoding="utf-8"))
        variables = task_vars | generate_ansible_template_vars(
            path=name, fullpath=source, dest_path=entry.get("dest")
        )
        templar = self._templar.copy_with_new_env(
            searchpath=self._task.get_search_path(), available_variables=variables
        )
        overrides = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
        content = templar.template(text, escape_backslashes=False, overrides=overrides)
        rest = {key: value for key, value in entry.items() if key != "template"}
        return {**rest, "content": content}
