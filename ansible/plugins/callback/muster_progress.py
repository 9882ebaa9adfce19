# SPDX-License-Identifier: Apache-2.0
"""Report the task that runs and failed tasks to the program that runs this play."""

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible.executor.task_result import CallbackTaskResult
from ansible.playbook.task import Task
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: muster_progress
type: aggregate
short_description: Write each task's title, and what failed, to a file descriptor
description:
  - One JSON object per line, C({"task"}) for a task that begins, C({"task", "failed"}) for one that
    failed, to the file descriptor whose number is in the environment variable MUSTER_PROGRESS_FD.
    Without the variable nothing is written.
  - Tasks that change nothing (facts, checks of arguments, and those that only end a run) are left out,
    unless they fail.
requirements: [enabled in the configuration]
"""

NO_WORK = (
    *("fail", "assert", "gather_facts", "host_facts", "validate_argument_spec"),
    *("set_fact", "add_host"),
)
"""Actions, without their collection."""


def sentence(result: Mapping[str, Any]) -> str:
    """Return what a failed task said, in one line."""
    # The result of a loop only says that items failed.
    items = [item for item in result.get("results", []) if item.get("failed")]
    said = (items or [result])[0]
    words = said.get("msg") or said.get("censored") or said.get("stderr") or "no reason given"
    if isinstance(words, list):
        words = " ".join(str(word) for word in words)
    return " ".join(str(words).split())


class CallbackModule(CallbackBase):
    """Writes lines."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "muster_progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        descriptor = os.environ.get("MUSTER_PROGRESS_FD")
        self._descriptor = int(descriptor) if descriptor else None

    def v2_playbook_on_task_start(self, task: Task, is_conditional: bool) -> None:  # noqa: ARG002
        if task.action.rpartition(".")[2] not in NO_WORK:
            self._write({"task": task.get_name().strip()})

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._failed(result)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        self._failed(result)

    def _failed(self, result: CallbackTaskResult) -> None:
        # The result of a task with no_log holds no more than that.
        title = result.task.get_name().strip()
        self._write({"task": title, "failed": sentence(result.result)})

    def _write(self, event: Mapping[str, str]) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, json.dumps(event).encode() + b"\n")
