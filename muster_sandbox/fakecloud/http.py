"""Requests and answers, as plain types."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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

    `otherwise` makes the answer where waiting is given up.
    """

    def __init__(self, otherwise: Callable[[], "Answer"]) -> None:
        self._otherwise = otherwise
        self.value: Answer | None = None
        self._callback: Callable[[Answer], None] | None = None

    def resolve(self, value: "Answer") -> None:
        """Set the answer. A second one is ignored: a timeout may have been first."""
        if self.value is None:
            self.value = value
            if self._callback:
                self._callback(value)

    def give_up(self) -> None:
        """Answer without waiting any longer."""
        self.resolve(self._otherwise())

    def then(self, callback: Callable[["Answer"], None]) -> None:
        """Call `callback` with the answer, now or once it is set."""
        self._callback = callback
        if self.value is not None:
            callback(self.value)


Answer = Resource | Reply


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `path` and `query` are undecoded; names of headers are lower case."""

    verb: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


Handle = Callable[[Request], Reply | Deferred]


def reply(body: Answer, status: int = 200) -> Reply:
    """A JSON body as a reply; a reply is returned as it is."""
    if isinstance(body, Reply):
        return body
    return json_reply(json.dumps(body, separators=(",", ":")).encode(), status)
