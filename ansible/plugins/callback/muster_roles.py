# SPDX-License-Identifier: Apache-2.0
"""One line for each role with its seconds; all other output of Ansible goes into the log file."""

import re
import sys
import time
from collections.abc import Callable
from typing import Any

import ansible.constants
from ansible.executor.stats import AggregateStats
from ansible.executor.task_result import CallbackTaskResult
from ansible.playbook.play import Play
from ansible.playbook.task import Task
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.utils.color import parsecolor
from ansible.utils.display import Display

DOCUMENTATION = r"""
name: muster_roles
type: stdout
short_description: One line for each role; the rest in the log file
description:
  - Prints a line when a role has run, with the play, the number of hosts on which it did anything,
    the number of changes and the seconds. A role that was skipped on all hosts has no line.
  - Failures, unreachable hosts, differences (C(--diff)), warnings and messages of tasks are
    printed in full.
  - All else that C(default) would print goes into Ansible's log file, whose name is the last line.
  - Control characters of hosts' messages go to neither.
extends_documentation_fragment: [default_callback, result_format_callback]
requirements: [set as stdout_callback, log_path set]
"""

constants: Any = ansible.constants
"""Ansible makes their names when it is imported, so mypy knows none."""

TALKS = ("software_build",)
"""Actions that print lines while they run."""

ROLE_COLUMNS = 16
PLAY_COLUMNS = 26
NO_WORK = ("gather_facts", "host_facts", "validate_argument_spec")
"""Actions, without their collection, that alone give a role no line."""

OF_DIFFERENCES = (
    constants.COLOR_DIFF_ADD,
    constants.COLOR_DIFF_REMOVE,
    constants.COLOR_DIFF_LINES,
)
"""Colours that are in a text before it is printed."""

KEPT = re.compile(rf"(\n|\t|\x1b\[(?:0|{'|'.join(map(parsecolor, OF_DIFFERENCES))})m)")


def printable(text: str) -> str:
    """Return a text without what controls a terminal, but for what is `KEPT`."""
    parts = KEPT.split(text)
    for number in range(0, len(parts), 2):
        parts[number] = "".join(char if char.isprintable() else " " for char in parts[number])
    return "".join(parts)


class LogOnly:
    """Ansible's display whose lines go only to the log file, unless `shown` is set."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.shown = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._display, name)

    def display(self, msg: str, *arguments: Any, log_only: bool = False, **options: Any) -> None:
        """Write a line to the log, and to the screen while `shown` is set."""
        self._display.display(msg, *arguments, log_only=log_only or not self.shown, **options)

    def _error(self, *arguments: Any, **options: Any) -> None:
        """Print an error with its place, unless the play continues: its result is in the log."""
        if self.shown:
            self._display._error(*arguments, **options)

    def banner(self, msg: str, color: str | None = None, cows: bool = False) -> None:  # noqa: ARG002 (the display's signature)
        """Write a title; it has no frame in a log."""
        self.display(f"\n{msg}", color=color)


class CallbackModule(Default):
    """Prints lines of roles."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "muster_roles"

    def __init__(self) -> None:
        super().__init__()
        self._screen = self._display
        self._raw = self._screen.display
        # Warnings and errors are printed by the display itself.
        self._screen.display = self._printed  # type: ignore[method-assign]
        self._log = LogOnly(self._screen)
        self._display = self._log  # type: ignore[assignment]
        self._began = time.monotonic()
        self._play_name = ""
        self._role: str | None = None
        self._since = 0.0
        self._hosts: set[str] = set()
        self._changes = 0
        self._is_open = False
        self._failed_task = ""

    # What Ansible calls.

    def v2_playbook_on_play_start(self, play: Play) -> None:
        self._end_role()
        self._play_name = play.get_name().strip()
        super().v2_playbook_on_play_start(play)

    def v2_playbook_on_task_start(self, task: Task, is_conditional: bool) -> None:
        self._begin_task(task)
        super().v2_playbook_on_task_start(task, is_conditional)

    def v2_playbook_on_handler_task_start(self, task: Task) -> None:
        self._begin_task(task)
        super().v2_playbook_on_handler_task_start(task)

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        if result.task.action.rpartition(".")[2] not in NO_WORK:
            self._hosts.add(result.host.get_name())
        self._changes += bool(result.result.get("changed"))
        super().v2_runner_on_ok(result)
        # Of debug and assert, whose messages are for the person who runs the play.
        if result.result.get("_ansible_verbose_always") and "msg" in result.result:
            said = result.result["msg"]
            for line in said if isinstance(said, list) else str(said).splitlines():
                self._say(f"  {line}")

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        if ignore_errors:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        self._in_full(result, lambda: super(CallbackModule, self).v2_runner_on_failed(result))

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        self._in_full(result, lambda: super(CallbackModule, self).v2_runner_on_unreachable(result))

    def v2_on_file_diff(self, result: CallbackTaskResult) -> None:
        self._shown(lambda: super(CallbackModule, self).v2_on_file_diff(result))

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        self._end_role()
        super().v2_playbook_on_stats(stats)
        hosts = sorted(stats.processed)
        changes = sum(stats.changed.values())
        failed = sorted({*stats.failures, *stats.dark})
        seconds = time.monotonic() - self._began
        self._say("")
        self._say(f"{_number(len(hosts), 'host')}, {changes} changed, {seconds:.0f} s in all")
        if failed:
            self._say(f"failed: {', '.join(failed)}", constants.COLOR_ERROR)
        if constants.DEFAULT_LOG_PATH:
            self._say(f"all that Ansible said: {constants.DEFAULT_LOG_PATH}")

    # Lines.

    def _begin_task(self, task: Task) -> None:
        # The public methods give a task's name with the role's in it, but not the role's alone.
        role = task._role.get_name() if task._role else ""
        if role != self._role:
            self._end_role()
            self._role = role
            self._since = time.monotonic()
            if sys.stdout.isatty():
                self._screen.display(f"{self._title()} ...", screen_only=True, newline=False)
                sys.stdout.flush()
                self._is_open = True
        if task.action.rpartition(".")[2] in TALKS:
            self._clear()

    def _title(self) -> str:
        if not self._role:
            return f"{self._play_name:<{ROLE_COLUMNS + 1 + PLAY_COLUMNS}}"
        return f"{self._role:<{ROLE_COLUMNS}} {self._play_name:<{PLAY_COLUMNS}}"

    def _end_role(self) -> None:
        role, self._role = self._role, self._role
        if role is not None and self._hosts:
            seconds = time.monotonic() - self._since
            changed = f"{self._changes} changed" if self._changes else ""
            colour = constants.COLOR_CHANGED if self._changes else constants.COLOR_OK
            hosts = _number(len(self._hosts), "host")
            self._say(f"{self._title()} {hosts:>9}  {changed:<11} {seconds:6.1f} s", colour)
        else:
            self._clear()
        self._role, self._hosts, self._changes = None, set(), 0

    def _clear(self) -> None:
        """Remove the line of a role that runs."""
        if self._is_open:
            self._raw("\r\033[K", screen_only=True, newline=False)
            self._is_open = False

    def _printed(self, msg: str, *arguments: Any, **options: Any) -> None:
        """Write a line to screen and log: root of a host says what it likes in messages."""
        self._raw(printable(msg), *arguments, **options)

    def _say(self, line: str, colour: str | None = None) -> None:
        self._clear()
        self._screen.display(line, color=colour, screen_only=True)
        sys.stdout.flush()

    def _shown(self, tell: Callable[[], object]) -> None:
        """Let the default callback print to the screen, too."""
        self._clear()
        self._log.shown = True
        try:
            tell()
        finally:
            self._log.shown = False

    def _in_full(self, result: CallbackTaskResult, tell: Callable[[], object]) -> None:
        self._hosts.add(result.host.get_name())
        if self._failed_task != result.task._uuid:
            self._failed_task = result.task._uuid
            self._say(f"\n{self._play_name}: {result.task.get_name().strip()}")
        if result.task.no_log:
            # Ansible censors the result, but not the message of the exception.
            result.result.pop("exception", None)
        self._shown(tell)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
