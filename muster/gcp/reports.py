"""What a VM reports about its own work, in the guest attribute `muster/report`.

https://cloud.google.com/compute/docs/metadata/manage-guest-attributes
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.catalog.printable import one_line
from muster.gcp.api import LAST_LOOK_S, CloudError, Compute, exists, last

ATTRIBUTE = "muster/report"
RUNNING, DONE, FAILED = "running", "done", "failed"
POLL_S = 2.0
"""Seconds between two polls of a VM."""
CONSOLE_LINES = 25
"""Lines of a console that an error shows."""

Progress = Callable[[str], None]
"""Called with each line of progress for a person."""


@dataclass(frozen=True)
class Report:
    """How far a VM is with one archive."""

    bundle: str
    """sha256 of the archive, as hexadecimal digits."""
    state: str
    """running, done or failed."""
    step: str = ""
    """Title of the play, task or stage."""
    message: str = ""
    """One sentence, when it failed."""


def read(compute: Compute, instance: str) -> Report | None:
    """Return what a VM (`zones/Z/instances/I`) reports; None where it hasn't yet."""
    answer = exists(lambda: compute.get(f"{instance}/getGuestAttributes", queryPath=ATTRIBUTE))
    items = (answer or {}).get("queryValue", {}).get("items", [])
    # The VM writes the attribute: a value that isn't a report is ignored.
    if not items:
        return None
    try:
        data = json.loads(items[0]["value"])
        return Report(
            **{name: one_line(str(data.get(name, ""))) for name in Report.__annotations__}
        )
    except (ValueError, AttributeError):
        return None


@dataclass
class Watch:
    """Polls one VM until its work with one archive has ended.

    `instance` is `zones/Z/instances/I`; `bundle` the archive's sha256. `vm` is the VM at the last
    poll, None if it was gone.
    """

    compute: Compute
    instance: str
    bundle: str
    progress: Progress
    report: Report | None = None
    vm: dict[str, Any] | None = None
    _said: str = ""

    def until(self, seen: Callable[["Watch"], bool], timeout_s: float) -> bool:
        """Poll until `seen` is true; False if it isn't in time. Reports each new step."""
        until = time.monotonic() + timeout_s
        compute = self.compute.by(until + LAST_LOOK_S)
        while True:
            self._look(compute)
            if seen(self):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)

    def _look(self, compute: Compute) -> None:
        # The VM first: so the last report of a VM that ends is not missed.
        self.vm = exists(lambda: compute.get(self.instance))
        report = read(compute, self.instance) if self.vm else None
        if report and report.bundle == self.bundle:
            self.report = report
            if report.step and report.step != self._said:
                self._said = report.step
                self.progress(f"{last(self.instance)}: {report.step}")

    @property
    def state(self) -> str:
        """State of the last report of this archive; "" where there was none."""
        return self.report.state if self.report else ""

    @property
    def status(self) -> str:
        """Status of the VM, as Google calls it; "" where it is gone."""
        return str(self.vm["status"]) if self.vm else ""

    @property
    def last_step(self) -> str:
        """The last step, as part of a sentence."""
        step = self.report.step if self.report else ""
        return f'at "{step}"' if step else "before its first step"


def console(compute: Compute, instance: str, lines: int = CONSOLE_LINES) -> str:
    """Return the end of a VM's console, or why there is none."""
    try:
        output = compute.get(f"{instance}/serialPort", port=1)
    except CloudError as error:
        return f"(no console: {error})"
    # Jobs write there too, where users may: colours are lost with what could harm.
    said = str(output.get("contents", "")).rstrip().splitlines()[-lines:]
    return "\n".join(map(one_line, said))
