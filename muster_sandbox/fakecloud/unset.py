"""What a body says nothing with: fields that a server reads as if they were not there.

An enum that is "" is unset: Google's Pulumi provider sends scheduling.provisioningModel and
scheduling.instanceTerminationAction as "" where a program gives none. Nulls stay, because a PATCH
removes a field with null.
"""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.fakecloud import undocumented
from muster_sandbox.fakecloud.descriptions import Description, Method


def without(method: Method, body: Any) -> Any:
    """Return the body of a call without unset enums, and without what only Google's servers know.

    The body must have passed the checks of its method.
    """
    return body if method.request is None else _kept(method.description, method.request, body)


def is_unset(schema: Mapping[str, Any], value: Any) -> bool:
    """Say whether a value of the schema is an enum that isn't set."""
    return value == "" and "enum" in schema


def _kept(api: Description, schema: Mapping[str, Any], value: Any) -> Any:
    schema = api.schemas[schema["$ref"]] if "$ref" in schema else schema
    if isinstance(value, list) and "items" in schema:
        return [_kept(api, schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    ignored = undocumented.fields(api.name, schema.get("id", ""))
    return {
        name: _kept(api, properties[name], inner) if name in properties else inner
        for name, inner in value.items()
        if name not in ignored and not is_unset(properties.get(name, {}), inner)
    }
