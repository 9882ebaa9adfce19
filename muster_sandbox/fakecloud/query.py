"""The query parameters that lists and gets share: fields, filter, orderBy, paging."""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.filters import compile_filter
from muster_sandbox.fakecloud.http import Resource


def select(answer: Resource, fields: str | None) -> Resource:
    """The parts of an answer that `fields` asks for.

    https://developers.google.com/api-client-library/dotnet/guide/performance#partial: names by
    comma, inner ones as a/b or a(b,c), * for all of a level.
    """
    if not fields or fields == "*":
        return answer
    mask, rest = _mask(fields, 0)
    if rest != len(fields):
        raise invalid(f"Invalid field selection {fields}", "invalidParameter")
    chosen: Resource = _masked(answer, mask)
    return chosen


Mask = dict[str, Any]


def _mask(text: str, at: int) -> tuple[Mask, int]:
    """Parse from `at` up to the closing bracket or the end; {"items": {"name": {}}}."""
    mask: Mask = {}
    while True:
        inner, at = _name(text, at, mask)
        if at < len(text) and text[at] == "(":
            fields, at = _mask(text, at + 1)
            if at >= len(text) or text[at] != ")":
                raise invalid(f"Invalid field selection {text}", "invalidParameter")
            inner.update(fields)
            at += 1
        if at >= len(text) or text[at] != ",":
            return mask, at
        at += 1


def _name(text: str, at: int, mask: Mask) -> tuple[Mask, int]:
    while True:
        end = at
        while end < len(text) and text[end] not in "/(),":
            end += 1
        name = text[at:end].strip()
        if not name:
            raise invalid(f"Invalid field selection {text}", "invalidParameter")
        mask = mask.setdefault(name, {})
        if end >= len(text) or text[end] != "/":
            return mask, end
        at = end + 1


def _masked(value: Any, mask: Mask) -> Any:
    if not mask:
        return value
    if isinstance(value, list):
        return [_masked(item, mask) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _masked(inner, mask[name] if name in mask else mask["*"])
        for name, inner in value.items()
        if name in mask or "*" in mask
    }


def matching(resources: Mapping[str, Resource], parameters: Mapping[str, str]) -> Iterable[str]:
    """The names of the resources that pass the `filter`."""
    text = parameters.get("filter")
    if not text:
        return resources
    test = compile_filter(text)
    return [name for name, resource in resources.items() if test(resource)]


def page(
    names: Iterable[str], parameters: Mapping[str, str], *, default: int = 500
) -> tuple[list[str], str]:
    """One page of sorted names, and the token for the next ("" at the end).

    A token holds the last name of a page, so resources that are created or deleted between two
    pages neither repeat nor hide others.
    """
    return _page(sorted(names), parameters, default)


def newest_first(
    resources: Mapping[str, Resource], names: Iterable[str], parameters: Mapping[str, str]
) -> tuple[list[str], str]:
    """One page as `page` gives it, for orderBy=creationTimestamp desc."""
    # A name can't have a space, and no character of a time stamp is beyond "~".
    keys = [f"{_inverted(resources[name]['creationTimestamp'])} {name}" for name in names]
    chosen, token = _page(sorted(keys), parameters, 500)
    return [key.partition(" ")[2] for key in chosen], token


def _inverted(stamp: str) -> str:
    """A text that sorts in the opposite order of `stamp`."""
    return "".join(chr(158 - ord(letter)) for letter in stamp)


def _page(keys: list[str], parameters: Mapping[str, str], default: int) -> tuple[list[str], str]:
    size = int(parameters.get("maxResults", default)) or default
    after = _read_token(parameters.get("pageToken", ""))
    rest = keys[bisect_right(keys, after) :] if after else keys
    chosen = rest[:size]
    return chosen, _token(chosen[-1]) if len(rest) > size else ""


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([name]).encode()).decode()


def _read_token(token: str) -> str:
    if not token:
        return ""
    try:
        (name,) = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError, TypeError) as error:
        raise ApiError(
            400, "invalid", f"Invalid value for field 'pageToken': '{token}'."
        ) from error
    return str(name)
