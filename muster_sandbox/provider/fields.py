"""Tables of inputs: how they are sent, how outputs are read, and what a change of one means.

A resource type is a table of `Field`s by input name; nested objects have their own tables. The
tables are written by hand: no package says which inputs replace a resource. They follow the
provider's reference (https://www.pulumi.com/registry/packages/gcp) and its observed behaviour.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster_sandbox.provider.values import DEFAULTS, UNKNOWN, has_unknown


@dataclass(frozen=True)
class Field:
    """One input and its place in Google's REST interface."""

    api: str = ""
    """Name in the REST object, dotted where nested deeper; empty: the input's own name."""

    replace: bool = False
    """A change replaces the resource."""

    computed: bool = False
    """The cloud sets it; leaving it out of the program is no change."""

    local: bool = False
    """Never sent: only the provider uses it, or it is part of the address."""

    many: bool = False
    default: Any = None
    fields: "Fields | None" = None
    send: Callable[[Any], Any] = lambda value: value
    receive: Callable[[Any], Any] = lambda value: value
    same: Callable[[Any, Any], bool] = lambda new, old: bool(new == old)


Fields = Mapping[str, Field]

NOTHING: tuple[Any, ...] = (None, "", False, 0, [], {})
"""Values that mean the same as leaving an input out."""


def to_body(fields: Fields, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the REST object for some inputs; an empty list is not sent."""
    body: dict[str, Any] = {}
    for name, field in fields.items():
        value = inputs.get(name, field.default)
        if value in (None, []) or field.local:
            continue
        put(body, field.api or name, body_of(field, value))
    return body


def body_of(field: Field, value: Any) -> Any:
    """Return one value as it is sent."""
    if field.fields is None:
        return field.send(value)
    if field.many:
        return [field.send(to_body(field.fields, item)) for item in value]
    return field.send(to_body(field.fields, value))


def to_state(
    fields: Fields, answer: Mapping[str, Any], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the outputs for a REST object; inputs that are never sent stay as in the program."""
    state: dict[str, Any] = {}
    for name, field in fields.items():
        given = inputs.get(name, field.default)
        if field.local:
            value = given
        else:
            value = take(answer, field.api or name)
            if value is not None:
                value = state_of(field, value, given)
        if value is not None:
            state[name] = value
    return state


def state_of(field: Field, value: Any, given: Any) -> Any:
    """Return the output for a received value."""
    value = field.receive(value)
    if field.fields is None or value is None:
        return value
    if not field.many:
        return to_state(field.fields, value, given if isinstance(given, Mapping) else {})
    known = given if isinstance(given, list) else []
    return [
        to_state(field.fields, item, known[index] if index < len(known) else {})
        for index, item in enumerate(value)
    ]


def planned(fields: Fields, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preview's outputs of a new resource: inputs, and values that aren't known yet."""
    state: dict[str, Any] = {}
    for name, field in fields.items():
        value = inputs.get(name, field.default)
        if value is None and field.computed:
            value = UNKNOWN
        elif field.fields is not None and isinstance(value, list):
            value = [
                planned(field.fields, item) if isinstance(item, Mapping) else item for item in value
            ]
        elif field.fields is not None and isinstance(value, Mapping):
            value = planned(field.fields, value)
        if value is not None:
            state[name] = value
    return state


def overlaid(plan: Any, state: Any) -> Any:
    """Return a plan whose unknown values are filled in from the state."""
    if plan == UNKNOWN and state is not None:
        return state
    if isinstance(plan, Mapping) and isinstance(state, Mapping):
        return {name: overlaid(value, state.get(name)) for name, value in plan.items()}
    if isinstance(plan, list) and isinstance(state, list) and len(plan) == len(state):
        return [overlaid(item, there) for item, there in zip(plan, state, strict=True)]
    return plan


def inputs_after_read(
    fields: Fields, inputs: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the inputs, with those corrected that no longer match the state."""
    corrected: dict[str, Any] = {}
    for name, value in inputs.items():
        field, now = fields.get(name), state.get(name)
        if name == DEFAULTS or field is None or field.local:
            corrected[name] = value
            continue
        differs = any(changes({name: field}, {name: value}, {name: now}, {name: value}))
        if not differs:
            corrected[name] = value
        elif now is None:
            continue
        elif field.fields and isinstance(value, Mapping) and isinstance(now, Mapping):
            corrected[name] = inputs_after_read(field.fields, value, now)
        elif field.fields and isinstance(value, list) and len(value) == len(now):
            corrected[name] = [
                inputs_after_read(field.fields, item, there)
                for item, there in zip(value, now, strict=True)
            ]
        else:
            corrected[name] = now
    return corrected


@dataclass(frozen=True)
class Change:
    """An input that differs from the state."""

    path: str
    replace: bool
    added: bool = False
    deleted: bool = False

    @property
    def name(self) -> str:
        """The outermost input."""
        return self.path.split(".")[0].split("[")[0]


def changes(
    fields: Fields,
    news: Mapping[str, Any],
    state: Mapping[str, Any],
    olds: Mapping[str, Any],
    path: str = "",
) -> Iterator[Change]:
    """Yield what differs between the program's inputs and the state.

    The state is compared, not the earlier inputs, as the real provider does: so a cloud that
    leaves out a field, or answers with another value, shows as a change at every `up`. So does one
    that fills in what the program leaves out, unless the field is one that the cloud sets.
    """
    for name, field in fields.items():
        where = f"{path}.{name}" if path else name
        new, old = news.get(name, field.default), state.get(name)
        if has_unknown(new) and field.fields is None:
            yield Change(where, field.replace)
        elif new is None:
            if not field.computed and old not in NOTHING:
                yield Change(where, field.replace, deleted=True)
        elif field.fields is None:
            if not field.same(new, old) and not (new in NOTHING and old in NOTHING):
                yield Change(where, field.replace, added=old is None)
        else:
            yield from nested(field, new, old, olds.get(name), where)


def is_ignored(path: str, patterns: Iterable[str]) -> bool:
    """Say whether `ignore_changes` names a changed value, or something that contains it.

    The patterns are the engine's: `bootDisk.initializeParams`, `networkInterfaces[*].networkIp`.
    """
    for pattern in patterns:
        expression = re.escape(pattern).replace(r"\[\*\]", r"\[\d+\]")
        if re.match(rf"{expression}($|[.\[])", path):
            return True
    return False


def nested(field: Field, new: Any, old: Any, earlier: Any, where: str) -> Iterator[Change]:
    """Yield what differs in an object or a list of objects."""
    if not field.many:
        new, old, earlier = [new], [] if old is None else [old], [earlier]
    if has_unknown(new) and not isinstance(new, list):
        yield Change(where, field.replace)
        return
    old = old or []
    earlier = earlier if isinstance(earlier, list) else []
    if len(new) != len(old):
        yield Change(where, field.replace, added=not old, deleted=not new)
        return
    for index, (item, there) in enumerate(zip(new, old, strict=True)):
        before = earlier[index] if index < len(earlier) else None
        at = f"{where}[{index}]" if field.many else where
        if not isinstance(item, Mapping):
            yield Change(at, field.replace)
            continue
        yield from changes(field.fields or {}, item, there, before or {}, at)


def unmapped(fields: Fields, inputs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of each input that the table lacks."""
    for name, value in inputs.items():
        if name == DEFAULTS or value is None:
            continue
        where = f"{path}.{name}" if path else name
        field = fields.get(name)
        if field is None:
            yield where
        elif field.fields is not None:
            for index, item in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(item, Mapping):
                    yield from unmapped(
                        field.fields, item, f"{where}[{index}]" if field.many else where
                    )


def put(body: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.c` in nested objects."""
    *outer, last = path.split(".")
    for name in outer:
        body = body.setdefault(name, {})
    body[last] = value


def take(answer: Mapping[str, Any], path: str) -> Any:
    """Return `a.b.c` of nested objects; None where a part is missing."""
    value: Any = answer
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
