# SPDX-License-Identifier: Apache-2.0
"""Print what each host answers to a playbook of one task, for muster/verify/ansible_query.py."""

import json
from collections.abc import Mapping
from typing import Any

from ansible.executor.stats import AggregateStats
from ansible.executor.task_result import CallbackTaskResult
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: muster_answers
type: stdout
short_description: Print each result as a line of JSON
description:
  - One JSON object per line, which has the host's result under its name, as the results come. An empty
    one is the last, unless the run was broken off.
  - A result that can't be printed, such as one of hundreds of lists in each other, is a warning of
    Ansible, and all others have their lines.
requirements: [set as stdout_callback]
"""


class CallbackModule(CallbackBase):
    """Prints lines."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "muster_answers"

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        self._print({result.host.name: result.result})

    def v2_runner_on_failed(
        self,
        result: CallbackTaskResult,
        ignore_errors: bool = False,  # noqa: ARG002
    ) -> None:
        self._print({result.host.name: result.result})

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        self._print({result.host.name: result.result})

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:  # noqa: ARG002
        self._print({})

    def _print(self, line: Mapping[str, Any]) -> None:
        # Ansible's own objects, such as warnings, are none of JSON.
        self._display.display(json.dumps(line, default=str))
