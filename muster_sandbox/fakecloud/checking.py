"""Checks a request against its method's description: unknown and ill-typed fields are refused.

What counts as a type follows protobuf's JSON form (https://protobuf.dev/programming-guides/json/),
in which Google's servers read bodies: integers may come as strings and the other way round; null
means that the field is absent, and is refused in a list. An enum that is "" is unset.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from muster_sandbox.fakecloud import byte_values, undocumented, unset
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.descriptions import Description, Method
from muster_sandbox.fakecloud.places import ANY_ZONE

INTEGER = re.compile(r"-?\d+")
RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
# Pulumi's provider sends nodeAffinities: [null], which Google accepts.
NULL_ITEMS = {"nodeAffinities"}
# Parameters of all APIs that the descriptions leave out; google-cloud-secret-manager sends
# $alt=json;enum-encoding=int and reads enums by name, too:
# https://cloud.google.com/apis/docs/system-parameters
SYSTEM = {"$alt"}


def check(method: Method, query: Mapping[str, list[str]], body: Any) -> None:
    """Refuse what the description doesn't know; ApiError 400 names the field."""
    for name, values in query.items():
        if name in SYSTEM:
            continue
        description = method.parameters.get(name)
        if description is None or description.get("location") == "path":
            raise ApiError(
                400,
                "badRequest",
                f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query '
                f"parameter. Field '{name}' could not be found in request message.",
            )
        for value in values:
            _parameter(name, description, value)
    if body is None:
        return
    if method.request is None:
        if body != {}:
            raise invalid("Request payload is not allowed for this method.", "badRequest")
        return
    check_value(method.description, method.request, body)


def check_value(api: Description, schema: Mapping[str, Any], value: Any) -> None:
    """Check a body or an answer against its schema."""
    _value(api, schema, value, "", "resource")


def check_path(method: Method, parameters: Mapping[str, str]) -> None:
    """Refuse a path parameter that doesn't fit its pattern."""
    for name, value in parameters.items():
        pattern = method.parameters.get(name, {}).get("pattern")
        if method.id == "compute.imageFamilyViews.get" and (name, value) == ("zone", ANY_ZONE):
            continue  # gcloud sends it, though the pattern has not even room for it
        if pattern and not _pattern(pattern).fullmatch(value):
            raise invalid(
                f"Invalid value for field '{name}': '{value}'. Must be a match of regex '{pattern}'"
            )


def _parameter(name: str, description: Mapping[str, Any], value: str) -> None:
    kind = description["type"]
    fine = True
    if kind == "boolean":
        fine = value.lower() in {"true", "false"}
    elif kind == "integer" or description.get("format") in RANGES:
        low, high = RANGES[description.get("format", "int32")]
        fine = bool(INTEGER.fullmatch(value)) and low <= int(value) <= high
    if not fine:
        raise ApiError(
            400, "badRequest", f"Invalid value at '{name}' ({_typename(description)}), \"{value}\""
        )
    _choice(name, description, value)
    for bound, wrong in (("minimum", int.__lt__), ("maximum", int.__gt__)):
        if bound in description and wrong(int(value), int(description[bound])):
            raise invalid(
                f"Invalid value for field '{name}': '{value}'. Values must be between "
                f"{description.get('minimum')} and {description.get('maximum')}"
            )


def _value(api: Description, schema: Mapping[str, Any], value: Any, field: str, where: str) -> None:
    """Check `value` of `schema`; `where` is its path in the body, `field` its own name."""
    reference = schema.get("$ref")
    if reference:
        schema = api.schemas[reference]
    kind = schema.get("type")
    if value is None or kind == "any":
        return
    if kind == "object":
        if not isinstance(value, dict):
            raise _wrong(schema, value, where)
        _object(api, schema, value, where)
    elif kind == "array":
        if not isinstance(value, list):
            raise _wrong(schema, value, where)
        for position, item in enumerate(value):
            if item is None and field not in NULL_ITEMS:
                raise _wrong(schema["items"], item, f"{where}[{position}]")
            _value(api, schema["items"], item, field, f"{where}[{position}]")
    elif not _scalar(schema, value):
        raise _wrong(schema, value, where)
    elif kind == "string" and not unset.is_unset(schema, value):
        _choice(where, schema, value)
        pattern = schema.get("pattern")
        if pattern and not _pattern(pattern).fullmatch(value):
            raise invalid(
                f"Invalid value for field '{where}': '{value}'. "
                f"Must be a match of regex '{pattern}'"
            )


def _object(api: Description, schema: Mapping[str, Any], value: dict[str, Any], where: str) -> None:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    more = undocumented.fields(api.name, schema.get("id", ""))
    for name, inner in value.items():
        wanted = properties.get(name, more.get(name, others))
        if wanted is None:
            _, _, place = where.partition(".")
            raise ApiError(
                400,
                "badRequest",
                f'Invalid JSON payload received. Unknown name "{name}"'
                + (f" at '{place}'" if place else "")
                + ": Cannot find field.",
            )
        _value(api, wanted, inner, name, f"{where}.{name}")


def _scalar(schema: Mapping[str, Any], value: Any) -> bool:
    kind, form = schema.get("type"), schema.get("format")
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if form in RANGES:
        return _integer(RANGES[form], value)
    if kind == "number":
        return isinstance(value, int | float)
    return isinstance(value, str) and (form != "byte" or _is_base64(value))


def _integer(bounds: tuple[int, int], value: Any) -> bool:
    if isinstance(value, str):
        whole = bool(INTEGER.fullmatch(value))
    else:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and bounds[0] <= int(value) <= bounds[1]


def _is_base64(value: str) -> bool:
    try:
        byte_values.decoded(value)
    except ValueError:
        return False
    return True


def _choice(where: str, schema: Mapping[str, Any], value: str) -> None:
    choices = schema.get("enum")
    if choices and value not in choices:
        raise invalid(
            f"Invalid value for field '{where}': '{value}'. Must be one of [{', '.join(choices)}]"
        )


def _wrong(schema: Mapping[str, Any], value: Any, where: str) -> ApiError:
    _, _, place = where.partition(".")
    shown = f'"{value}"' if isinstance(value, str) else value
    if place.startswith("payload"):
        # A secret's payload: callers log the errors that they get.
        shown = "a value that isn't shown here"
    return ApiError(
        400, "badRequest", f"Invalid value at '{place or where}' ({_typename(schema)}), {shown}"
    )


def _typename(schema: Mapping[str, Any]) -> str:
    """The type's name in Google's messages, e.g. TYPE_INT32."""
    kind = schema.get("format") if schema.get("format") in RANGES else schema.get("type")
    return {
        "boolean": "TYPE_BOOL",
        "integer": "TYPE_INT32",
        "number": "TYPE_DOUBLE",
        "object": "type.googleapis.com/" + str(schema.get("id", "object")),
    }.get(str(kind), f"TYPE_{str(kind).upper()}")


@lru_cache(maxsize=512)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
