"""What a handler gets, what it may answer, and the table of handlers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from muster.fakecloud.identity import Identity

if TYPE_CHECKING:
    from muster.fakecloud.cloud import Cloud, Request

Resource = dict[str, Any]
"""A JSON object: a resource, an operation, an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is more than JSON with status 200."""

    content: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(content: bytes, status: int = 200) -> Reply:
    """A reply of JSON that is text already."""
    return Reply(content, status, {"content-type": "application/json; charset=UTF-8"})


class Deferred:
    """An answer that comes later; `resolve` may be called before or after `then`, once.

    `otherwise` makes the answer for those who can't wait any longer.
    """

    def __init__(self, otherwise: Callable[[], "Answer"]) -> None:
        self._otherwise = otherwise
        self.value: Answer | None = None
        self._callback: Callable[[Answer], None] | None = None

    def resolve(self, value: "Answer") -> None:
        """Give the answer. A second one is ignored: a time-out may have been first."""
        if self.value is None:
            self.value = value
            if self._callback:
                self._callback(value)

    def give_up(self) -> None:
        """Answer without what was waited for."""
        self.resolve(self._otherwise())

    def then(self, callback: Callable[["Answer"], None]) -> None:
        """Call `callback` with the answer, now or when it is there."""
        self._callback = callback
        if self.value is not None:
            callback(self.value)


Answer = Resource | Reply


@dataclass(slots=True)
class Call:
    """One call of a method, routed, identified and checked against its description.

    `parameters` are those of the path, by the names of the description's `path` and `flatPath`;
    `query` holds the last value of each query parameter, `repeated` all values. `body` is the
    JSON body or None; `content` the raw one. `media` is "upload" or "download" where the path or
    `alt=media` says so, else "".
    """

    cloud: "Cloud"
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
        """The project's id: its number in the path has been translated."""
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


Plain = Callable[["Cloud", "Request"], Reply]

PLAIN: dict[tuple[str, str], Plain] = {}
"""(verb, path) -> function, for what no API description has: the token endpoint."""


def plain(verb: str, path: str) -> Callable[[Plain], Plain]:
    """Register a function for a path without description: `@plain("POST", "/token")`."""

    def register(function: Plain) -> Plain:
        PLAIN[verb, path] = function
        return function

    return register


Prepare = Callable[["Cloud"], None]

PREPARE: list[Prepare] = []
"""What services put into a cloud when it starts: public images, the default service account."""


def prepare(function: Prepare) -> Prepare:
    """Let a function see each cloud before its first call; the state may be an older one's."""
    PREPARE.append(function)
    return function
