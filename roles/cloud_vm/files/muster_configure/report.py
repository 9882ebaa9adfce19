# SPDX-License-Identifier: Apache-2.0
"""What others see of a run: the guest attribute, the notice at login, the broadcast at its end."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from .cloud import Cloud, TroubleError

ATTRIBUTE = "muster/report"
MIN_PAUSE_S = 2.0
"""Between two reports: the metadata server takes only a few a second."""
RETRY_S = 10.0
LONGEST = 2000
"""Characters of a message that is sent: apt's may be of any length; the journal has it whole."""
RUNNING, DONE, FAILED = "running", "done", "failed"


@dataclass(frozen=True)
class Report:
    """How far a VM is with one bundle."""

    bundle: str
    """Its sha256."""
    state: str
    """RUNNING, DONE or FAILED."""
    step: str = ""
    """Title of the task or stage."""
    message: str = ""
    """One sentence, when something failed."""


class Reporter:
    """Sends the newest report, not more often than MIN_PAUSE_S, from its own thread."""

    def __init__(
        self, cloud: Cloud, notice: str | Path, say: Callable[[str], object] = print
    ) -> None:
        """`notice`: file that is shown at login while there is something to say."""
        self._cloud = cloud
        self._notice = Path(notice)
        self.say = say
        self.pause_s = MIN_PAUSE_S
        self._newest: Report | None = None
        self._sent: Report | None = None
        self._changed = threading.Condition()

    def start(self) -> None:
        """Begin to send."""
        threading.Thread(target=self._send, daemon=True).start()

    def running(self, bundle: str, step: str, message: str = "") -> None:
        """Report what is running."""
        self._set(Report(bundle, RUNNING, step, message))

    def failed(self, bundle: str, step: str, message: str) -> None:
        """Report what has failed."""
        self._set(Report(bundle, FAILED, step, message))

    def done(self, bundle: str) -> None:
        """Report success."""
        self._set(Report(bundle, DONE))

    def flush(self, timeout_s: float) -> bool:
        """Wait until the newest report is sent; whether it was, in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._sent == self._newest, timeout_s)

    def _set(self, report: Report) -> None:
        with self._changed:
            if report == self._newest:
                return
            if report.message:
                self.say(f"{report.step}: {report.message}")
            # First: who reads a report finds the notice that belongs to it.
            self._show(report)
            self._newest = report
            self._changed.notify_all()

    def _show(self, report: Report) -> None:
        """Write or remove the notice."""
        if report.state == DONE:
            self._notice.unlink(missing_ok=True)
            return
        text = notice(report)
        # Outside the folder: everything in it is shown.
        new = self._notice.parent.with_name("." + self._notice.name)
        self._notice.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(self._notice)

    def _send(self) -> NoReturn:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._sent != self._newest)
                report = self._newest
            if report is None:
                continue  # nothing to send before the first one
            pause = self.pause_s
            try:
                short = replace(report, message=shortened(report.message))
                self._cloud.tell(ATTRIBUTE, json.dumps(asdict(short)))
            except TroubleError as error:
                self.say(f"no report: {error}")
                pause = RETRY_S
            else:
                with self._changed:
                    self._sent = report
                    self._changed.notify_all()
            if report.state == RUNNING or pause == RETRY_S:
                time.sleep(pause)


def shortened(text: str) -> str:
    """Return a text that a guest attribute takes: of a long one both ends."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} [...] {text[-half:]}"


def notice(report: Report) -> str:
    """Return what people read when they log in."""
    if report.state == FAILED:
        return (
            "\n*** This machine is not set up: Muster failed at\n"
            f"***   {report.step}: {report.message}\n"
            "*** Administrators: journalctl -u muster-configure says more.\n\n"
        )
    tried = f"\n***   ({report.message})" if report.message else ""
    return (
        "\n*** Muster is setting up this machine, in the background:\n"
        f"***   {report.step}{tried}\n"
        "*** SLURM's commands and the folders may not be there yet; running jobs go on.\n"
        "*** A message on this terminal will say when it is done.\n\n"
    )


def broadcast(text: str, say: Callable[[str], object] = print) -> None:
    """Tell all who are logged in."""
    try:
        subprocess.run(["wall", text], check=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"no broadcast: {error}")
