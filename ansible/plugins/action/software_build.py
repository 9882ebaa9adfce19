# SPDX-License-Identifier: Apache-2.0
"""Have software built folder by folder, and say meanwhile what is built and how far it is."""

import copy
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

EVERY_S = 60.0
"""Between two lines of one build."""

LOOK_S = 10.0
"""How long the end of a build waits for a look at its log that is under way."""

TAIL_BYTES = 4096
"""Of the log, in which its last line is looked for."""

LINE_CHARACTERS = 100
"""Of a line of the log; the rest is left out."""

TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""ECMA-48, 5.4: colours, and moves of the cursor."""


class ActionModule(ActionBase):
    """Run the module until it has to build, say so, and go on."""

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module once, and once more for each folder that is built."""
        super().run(tmp, task_vars)
        if self._task.check_mode:
            shown: dict[str, Any] = self._execute_module(task_vars=task_vars)
            return shown
        host = self._task.delegate_to or (task_vars or {})["inventory_hostname"]
        told: list[str] = []
        whole = self._until_next(told, task_vars)
        while "next" in whole:
            build = whole.pop("next")
            told.append(build["root"])
            with self._followed(f"{host} builds {build['module'] or build['root']}", build["log"]):
                whole = joined(whole, self._until_next(told, task_vars))
        return whole

    def _until_next(self, told: list[str], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(
            module_args={**self._task.args, "told": told}, task_vars=task_vars
        )
        return result

    @contextmanager
    def _followed(self, what: str, log: str) -> Iterator[None]:
        """Say that a build begins, and each minute what its log ends with."""
        display.display(f"{what}; follow it there: tail -f {log}")
        ended = threading.Event()
        # A host that has gone must not keep the run from saying so: daemon, and not for ever.
        follower = threading.Thread(
            target=self._beside()._follow, args=(what, log, ended), daemon=True
        )
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join(LOOK_S)

    def _beside(self) -> "ActionModule":
        """Return a copy that runs commands while this one runs the module.

        What a connection and `become` know of the command that runs is in their own attributes.
        """
        beside = copy.copy(self)
        beside._connection = copy.copy(self._connection)
        beside._connection.become = copy.copy(self._connection.become)
        return beside

    def _follow(self, what: str, log: str, ended: threading.Event) -> None:
        began = time.monotonic()
        while not ended.wait(EVERY_S):
            said = self._last_line(log)
            if not ended.is_set():
                display.display(f"{what}, {passed(time.monotonic() - began)}: {said}")

    def _last_line(self, log: str) -> str:
        command = self._connection._shell.join([*("tail", "-c", str(TAIL_BYTES)), log])
        try:
            looked = self._low_level_execute_command(command)
        except AnsibleError as error:
            return f"its log can't be read: {one_line(str(error))}"
        if looked["rc"] != 0:
            return f"its log can't be read: {one_line(looked['stderr'])}"
        return one_line(looked["stdout"]) or "its log is empty"


def joined(before: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of two runs of the module as if they were one."""
    return {
        **result,
        "changed": before["changed"] or result.get("changed", False),
        "paths": [*before["paths"], *result.get("paths", [])],
        "diff": [*before["diff"], *result.get("diff", [])],
    }


def one_line(text: str) -> str:
    """Return the last line of what a program printed for a terminal that says anything."""
    lines = re.split(r"[\r\n]+", TERMINAL_CODES.sub("", text))
    words = ["".join(filter(str.isprintable, line)).strip() for line in lines]
    return next(filter(None, reversed(words)), "")[:LINE_CHARACTERS]


def passed(seconds: float) -> str:
    """Return a time for people: 12 min, 1 h 5 min."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
