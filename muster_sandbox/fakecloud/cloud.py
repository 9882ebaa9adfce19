"""The cloud: its state, time, machines and settings."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from muster_sandbox.fakecloud.api_errors import not_found
from muster_sandbox.fakecloud.backends import Backend
from muster_sandbox.fakecloud.backends.memory import MemoryBackend
from muster_sandbox.fakecloud.clock import Clock, ManualClock, Task
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request
from muster_sandbox.fakecloud.injected_faults import Faults
from muster_sandbox.fakecloud.rate_limits import Rates
from muster_sandbox.fakecloud.store import Store
from muster_sandbox.fakecloud.usage import Usage

log = logging.getLogger(__name__)

PUBLIC_PROJECTS = frozenset(
    {
        "centos-cloud",
        "cos-cloud",
        "debian-cloud",
        "fedora-coreos-cloud",
        "opensuse-cloud",
        "oracle-linux-cloud",
        "rhel-cloud",
        "rhel-sap-cloud",
        "rocky-linux-accelerator-cloud",
        "rocky-linux-cloud",
        "suse-cloud",
        "suse-sap-cloud",
        "ubuntu-os-accelerator-images",
        "ubuntu-os-cloud",
        "ubuntu-os-pro-cloud",
        "windows-cloud",
        "windows-sql-cloud",
    }
)
"""Google's projects of public images: everybody may use these. Most have no images here.

`gcloud compute images list` asks all: https://cloud.google.com/compute/docs/images/os-details.
"""


@dataclass(slots=True)
class Settings:
    """A cloud's settings. All but the project may be changed while it runs.

    `latency_seconds` are by pattern of the method's id, the first that fits. `quotas` are by region
    (or "global") and metric: {"europe-west4": {"CPUS": 24}}; others are the defaults. `capacity` is
    how many instances of a machine type a zone has room for, by (zone, machine type); unlimited
    where it names none.
    Each HTTP answer is delayed by `answer_seconds`, and others are served meanwhile. More than
    `calls_per_second` of a group of Compute Engine's methods (lists, reads, changes) are refused;
    0 = unlimited. A policy that is set is in force `grant_seconds` later.
    `preemption_seconds` is how long an instance that is preempted may take to shut down:
    https://cloud.google.com/compute/docs/instances/spot#preemption-process
    """

    project: str = "demo-project"
    project_number: str = "123456789012"
    validate: bool = True
    latency_seconds: dict[str, float] = field(default_factory=dict)
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    capacity: dict[tuple[str, str], int] = field(default_factory=dict)
    answer_seconds: float = 0
    calls_per_second: float = 0
    preemption_seconds: int = 30
    grant_seconds: float = 0


class Cloud:
    """The state of a Google Cloud with one project of the user's, and the public image projects.

    `dispatch.open_cloud` makes one.

    Everything happens on one thread. `failures` are errors in fakecloud itself, which callers see
    as 501: each is a bug. `refused_hosts` are hosts that a client tried to reach through the server
    as its proxy.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        folder: Path | None = None,
        clock: Clock | None = None,
        backend: Callable[["Cloud"], Backend] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.store = Store(folder)
        self.usage = Usage(self.store)
        self.clock: Clock = clock or ManualClock()
        self.faults = Faults()
        self.backend: Backend = backend(self) if backend else MemoryBackend()
        self.waiting: dict[str, list[Deferred]] = {}
        """Operation -> the calls that wait for its end."""
        self.watchers: dict[str, list[Callable[[], None]]] = {}
        """Link of an instance -> functions to call once when its metadata changes."""
        self.ended = False
        """Whether the cloud is ending: new waits are answered immediately."""
        self.preempted: set[str] = set()
        """Links of the instances that are being preempted."""
        self.bulk_calls: deque[float] = deque(maxlen=20)
        """Times of the last bulk creations."""
        self.rates = Rates()
        self.heard: Callable[[str, float, int], None] = lambda *_: None
        """Called with method, time and HTTP status of each call, also of those in a batch."""
        self.middleware: Callable[[Handle, Request], Reply | Deferred] = lambda handle, request: (
            handle(request)
        )
        """Called instead of the handler, which it gets, also for each call of a batch."""
        self.failures: list[str] = []
        self.refused_hosts: list[str] = []

    def end_waits(self) -> None:
        """Answer all waits for a change or an operation with the present state, at the end."""
        self.ended = True
        for link in list(self.watchers):
            self.notify(link)
        for waiting in [wait for waits in self.waiting.values() for wait in waits]:
            waiting.give_up()

    def close(self) -> None:
        """End: machines are removed, the state remains."""
        self.backend.close()
        self.store.close()

    def later(self, seconds: float, task: Task) -> None:
        """Run a task on the cloud's thread in `seconds`, then flush the store."""
        self.clock.later(seconds, lambda: self._run(task))

    def report(self, task: Task) -> None:
        """Run a task on the cloud's thread soon: a backend's thread reports results this way."""
        self.clock.report(lambda: self._run(task))

    def _run(self, task: Task) -> None:
        try:
            task()
        except Exception as error:
            # A bug in one task must not end the loop that serves all others.
            log.exception("a task failed")
            self.failures.append(repr(error))
        finally:
            self.store.flush()

    def notify(self, link: str) -> None:
        """Notify the watchers of a resource (the metadata server) that it has changed."""
        for watcher in self.watchers.pop(link, []):
            watcher()

    def project_id(self, name: str) -> str:
        """The id of a project given by id or number; 404 for one that isn't there."""
        if name in {self.settings.project, self.settings.project_number}:
            return self.settings.project
        if name in PUBLIC_PROJECTS:
            return name
        raise not_found(f"projects/{name}")
