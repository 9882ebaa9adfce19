"""A resource's lifecycle through the stand-in alone, without an engine: its calls, in order.

After each step the state must agree with the program, or a second `up` would change something.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from muster_sandbox.provider.fields import Change, changes, inputs_after_read
from muster_sandbox.provider.resource import MAPPINGS, Resource
from muster_sandbox.provider.rest import Rest

OWNER = "demo-project"
"""The project whose path is left out of the calls."""


class Recorder(httpx.HTTPTransport):
    """Forwards requests, and records them as `POST zones/Z/disks?x=y`."""

    def __init__(self, bases: list[str]) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.bases = bases

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = str(request.url)
        path = next((url.removeprefix(base) for base in self.bases if url.startswith(base)), url)
        path, _, query = path.removeprefix(f"projects/{OWNER}/").partition("?")
        words = [word for word in query.split("&") if not word.startswith(("alt=", "pretty"))]
        tail = f"?{'&'.join(words)}" if words else ""
        self.calls.append(f"{request.method} {path}{tail}")
        return super().handle_request(request)


@dataclass
class Life:
    """Resources made through the stand-in, each by its own mapping."""

    rest: Rest
    recorder: Recorder
    made: dict[str, tuple[Resource, str, dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict
    )

    def create(self, kind: str, inputs: dict[str, Any]) -> list[str]:
        """Create one, check that it agrees with its inputs, and return the calls."""
        mapping = MAPPINGS[kind](self.rest)
        made, calls = self.watch(lambda: mapping.create(inputs))
        state = mapping.state(made.id, made.answer, inputs)
        self.agrees(mapping, inputs, state)
        self.made[kind] = (mapping, made.id, inputs, state)
        return calls

    def refresh(self, kind: str) -> list[str]:
        """Read one, check that it shows no change, and return the calls."""
        mapping, identity, inputs, state = self.made[kind]
        answer, calls = self.watch(lambda: mapping.read(identity, state))
        assert answer is not None
        read = mapping.state(identity, answer, inputs)
        self.agrees(mapping, inputs, read)
        assert inputs_after_read(mapping.fields, inputs, read) == inputs
        return calls

    def change(self, kind: str, **news: Any) -> list[str]:
        """Change one in place, and return the calls."""
        mapping, identity, inputs, state = self.made[kind]
        wanted = {**inputs, **news}
        differences = self.differs(mapping, wanted, state, inputs)
        assert differences, "the change is none"
        assert not any(change.replace for change in differences), differences
        names = {change.name for change in differences}
        answer, calls = self.watch(lambda: mapping.update(identity, state, wanted, names))
        after = mapping.state(identity, answer, wanted)
        self.agrees(mapping, wanted, after)
        self.made[kind] = (mapping, identity, wanted, after)
        return calls

    def replaces(self, kind: str, **news: Any) -> list[str]:
        """Return the inputs whose change replaces the resource."""
        mapping, _, inputs, state = self.made[kind]
        differences = self.differs(mapping, {**inputs, **news}, state, inputs)
        return sorted({change.name for change in differences if change.replace})

    def delete(self, kind: str) -> list[str]:
        """Delete one, check that it is gone, and return the calls."""
        mapping, identity, _, state = self.made.pop(kind)
        _, calls = self.watch(lambda: mapping.delete(identity, state))
        gone = mapping.read(identity, state)
        assert gone is None or gone.get("deleted")
        mapping.delete(identity, state)  # deleting a missing one is no error
        return calls

    def state(self, kind: str) -> dict[str, Any]:
        """Return a resource's outputs."""
        return self.made[kind][3]

    def agrees(self, mapping: Resource, inputs: dict[str, Any], state: dict[str, Any]) -> None:
        """Check that an unchanged `up` would change nothing, and that no input is lost."""
        assert self.differs(mapping, inputs, state, inputs) == []
        lacking = [name for name, value in state.items() if value is None and name in inputs]
        assert lacking == []

    @staticmethod
    def differs(
        mapping: Resource, news: dict[str, Any], state: dict[str, Any], olds: dict[str, Any]
    ) -> list[Change]:
        """Return the changes of the next `up`."""
        differences = list(changes(mapping.fields, news, state, olds))
        return mapping.refine(differences, state, news)

    def watch(self, work: Callable[[], Any]) -> tuple[Any, list[str]]:
        """Call a function and return the REST calls it made."""
        before = len(self.recorder.calls)
        done = work()
        return done, self.recorder.calls[before:]
