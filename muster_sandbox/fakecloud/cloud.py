"""The cloud: state, time, machines and settings, and how a request becomes an answer."""

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from muster.fakecloud import checking, identity, operations, permissions, query, routes
from muster.fakecloud.backends import Backend
from muster.fakecloud.backends.memory import MemoryBackend
from muster.fakecloud.call import (
    HANDLERS,
    PLAIN,
    PREPARE,
    Answer,
    Call,
    Deferred,
    Reply,
    json_reply,
)
from muster.fakecloud.clock import Clock, ManualClock, Task
from muster.fakecloud.descriptions import Match
from muster.fakecloud.errors import ApiError, invalid, not_found, not_implemented
from muster.fakecloud.faults import Faults
from muster.fakecloud.names import PUBLIC_PROJECTS
from muster.fakecloud.rates import Rates
from muster.fakecloud.store import Store
from muster.fakecloud.usage import Usage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `path` and `query` are undecoded; names of headers are lower case."""

    verb: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


@dataclass(slots=True)
class Settings:
    """What a cloud is like. All but the project may be changed while it runs.

    `latency_seconds` are by pattern of the method's id, the first that fits. `quotas` are by region
    (or "global") and metric: {"europe-west4": {"CPUS": 24}}; others are the defaults. `capacity` is
    how many instances of a machine type a zone has room for, by (zone, machine type); else enough.
    Each HTTP answer comes `answer_seconds` later, and others are served meanwhile. More than
    `calls_per_second` of a group of Compute Engine's methods (lists, reads, changes) are refused;
    0 = any number.
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


class Cloud:
    """Google Cloud with one project of the user's, and the public image projects.

    Everything happens on one thread. `failures` are errors of fakecloud's own, which callers see
    as 501; a test that finds one has found a bug. `refused_hosts` are hosts that a client wanted
    to reach through the server as its proxy.
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
        """Link of an instance -> what to call once when its metadata changes."""
        self.ended = False
        """Whether nobody is to wait any more."""
        self.preempted: set[str] = set()
        """Links of the instances that are being preempted."""
        self.bulk_calls: deque[float] = deque(maxlen=20)
        """When the last bulk creations were asked for."""
        self.rates = Rates()
        self.heard: Callable[[str, float, int], None] = lambda *_: None
        """Told the method, the time and the HTTP status of each call, also of those in a batch."""
        self.failures: list[str] = []
        self.refused_hosts: list[str] = []
        for prepare in PREPARE:
            prepare(self)
        operations.resume(self)
        self.store.flush()

    def end_waits(self) -> None:
        """Answer all who wait for a change or an operation, as things are now: the end is near."""
        self.ended = True
        for link in list(self.watchers):
            self.notify(link)
        for waiting in [each for found in self.waiting.values() for each in found]:
            waiting.give_up()

    def close(self) -> None:
        """End: no machine remains, the state does."""
        self.backend.close()
        self.store.close()

    def later(self, seconds: float, task: Task) -> None:
        """Run a task on the cloud's thread in `seconds`; what it changes is kept."""
        self.clock.later(seconds, lambda: self._run(task))

    def report(self, task: Task) -> None:
        """Run a task on the cloud's thread soon: how a backend's thread says what has happened."""
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
        """Tell those who watch a resource (the metadata server does) that it has changed."""
        for watcher in self.watchers.pop(link, []):
            watcher()

    def project_id(self, name: str) -> str:
        """The id of a project given by id or number; 404 for one that isn't there."""
        if name in {self.settings.project, self.settings.project_number}:
            return self.settings.project
        if name in PUBLIC_PROJECTS:
            return name
        raise not_found(f"projects/{name}")

    def handle(self, request: Request) -> Reply | Deferred:
        """Answer a request; a Deferred ends in a Reply or in JSON."""
        came = self.clock.now()
        method = ""
        found: Reply | Deferred
        try:
            plain = PLAIN.get((request.verb, request.path))
            if plain:
                return plain(self, request)
            match = routes.find(request.verb, request.path)
            method = match.method.id
            found = self._handle(request, match)
        except ApiError as error:
            found = reply(error.body(), error.status)
        except Exception as error:
            # Callers retry a 500 for 20 minutes (Pulumi's provider does), so a bug here is
            # answered as what it is to them: something that fakecloud can't do.
            log.exception("%s %s", request.verb, request.path)
            self.failures.append(f"{request.verb} {request.path}: {error!r}")
            found = reply(not_implemented(f"{request.verb} {request.path} ({error!r})").body(), 501)
        finally:
            self.store.flush()
        if method:
            self.heard(method, came, found.status if isinstance(found, Reply) else 200)
        return found

    def _handle(self, request: Request, match: Match) -> Reply | Deferred:
        function = HANDLERS.get(match.method.id)
        if function is None:
            raise not_implemented(match.method.id)
        repeated = parse_qs(request.query, keep_blank_values=True)
        parameters = match.parameters
        call = Call(
            cloud=self,
            method=match.method.id,
            version=match.method.description.version,
            parameters=parameters,
            query={name: values[-1] for name, values in repeated.items()},
            repeated=repeated,
            headers=request.headers,
            identity=identity.identify(self, request.headers),
            content=request.content,
            media=match.media or ("download" if repeated.get("alt") == ["media"] else ""),
        )
        if request.content and match.media != "upload":
            call.body = _json(request.content)
        if self.settings.validate:
            checking.check_path(match.method, parameters)
            checking.check(match.method, repeated, call.body)
        if "project" in parameters:
            parameters["project"] = self.project_id(parameters["project"])
        self.faults.refuse(call.method)
        self.rates.take(call.method, self.settings.calls_per_second, self.clock.now())
        permissions.check(call)
        answer = operations.repeated(call) or function(call)
        if isinstance(answer, dict):
            return reply(query.select(answer, call.query.get("fields")))
        return answer


def reply(body: Answer, status: int = 200) -> Reply:
    """A JSON body as a reply; what is a reply already stays."""
    if isinstance(body, Reply):
        return body
    return json_reply(json.dumps(body, separators=(",", ":")).encode(), status)


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise invalid(f"Parse Error: {error}", "parseError") from error
