"""What a handler gets, and the table of handlers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Answer, Deferred, Reply, Request, Resource
from muster_sandbox.fakecloud.identity import Identity


@dataclass(slots=True)
class Call:
    """One call of a method, routed, identified and checked against its description.

    `parameters` are those of the path, by the names of the description's `path` and `flatPath`;
    `query` holds the last value of each query parameter, booleans in lower case, `repeated` all
    values as they were sent. `body` is the
    JSON body or None; `content` the raw one. `media` is "upload" or "download" where the path or
    `alt=media` says so, else "".
    """

    cloud: Cloud
    method: str
    version: str
    parameters: dict[str, str]
    query: dict[str, str]
    repeated: dict[str, list[str]]
    headers: Mapping[str, str]
    identity: Identity
    body: Resource | None = None
    content: bytes = b""
    media: str = ""

    @property
    def project(self) -> str:
        """The project's id, also where the path has its number."""
        return self.parameters["project"]


Handler = Callable[[Call], Answer | Deferred]
F = TypeVar("F", bound=Handler)

HANDLERS: dict[str, Handler] = {}
"""Method id, as in the API description -> its function."""


def handler(*methods: str) -> Callable[[F], F]:
    """Register a function for methods: `@handler("compute.instances.insert")`."""

    def register(function: F) -> F:
        for method in methods:
            if method in HANDLERS:
                raise ValueError(f"two handlers for {method}")
            HANDLERS[method] = function
        return function

    return register


Plain = Callable[[Cloud, Request], Reply]

PLAIN: dict[tuple[str, str], Plain] = {}
"""(verb, path) -> function, for paths that no API description has: the token endpoint."""


def plain(verb: str, path: str) -> Callable[[Plain], Plain]:
    """Register a function for a path without description: `@plain("POST", "/token")`."""

    def register(function: Plain) -> Plain:
        PLAIN[verb, path] = function
        return function

    return register


Prepare = Callable[[Cloud], None]

PREPARE: list[Prepare] = []
"""Functions that prepare a cloud at its start: public images, the default service account."""


def prepare(function: Prepare) -> Prepare:
    """Register a function that runs before a cloud's first call; the state may be an old one."""
    PREPARE.append(function)
    return function
