"""Converts between the engine's values and Python's.

The engine's values are protobuf Structs: numbers are floats, a secret is an object with a
signature, an unknown value in a preview is a certain string. Source: pulumi/runtime/rpc.py.
"""

from typing import Any

from google.protobuf import json_format, struct_pb2
from pulumi.runtime import rpc

UNKNOWN = rpc.UNKNOWN
DEFAULTS = "__defaults"
"""Input with the names of the inputs that have the provider's defaults."""

SIGNATURE = rpc._special_sig_key
SECRET = rpc._special_secret_sig
ASSET = rpc._special_asset_sig


def from_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return a Struct as dictionaries; whole numbers become ints."""
    values: dict[str, Any] = whole_numbers(json_format.MessageToDict(struct))
    return values


def to_struct(value: dict[str, Any]) -> struct_pb2.Struct:
    """Return dictionaries as a Struct, without members that are None."""
    struct = struct_pb2.Struct()
    struct.update({key: item for key, item in value.items() if item is not None})
    return struct


def whole_numbers(value: Any) -> Any:
    """Turn 8896.0 into 8896, also in nested values."""
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain(value: Any) -> Any:
    """Return the value without the wrappers of secrets and without DEFAULTS."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            return plain(value.get("value"))
        return {key: plain(item) for key, item in value.items() if key != DEFAULTS}
    return [plain(item) for item in value] if isinstance(value, list) else value


def secret(value: Any) -> dict[str, Any]:
    """Mark a value as a secret."""
    return {SIGNATURE: SECRET, "value": value}


def is_secret(value: Any) -> bool:
    """Say whether the value, or anything in it, is marked as a secret."""
    if isinstance(value, dict):
        return value.get(SIGNATURE) == SECRET or any(map(is_secret, value.values()))
    return isinstance(value, list) and any(map(is_secret, value))


def with_secrets_of(inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs, marked as secret where the input of the same name is or holds one."""
    return {
        key: secret(value) if is_secret(inputs.get(key)) and not is_secret(value) else value
        for key, value in outputs.items()
    }


def has_unknown(value: Any) -> bool:
    """Say whether the value, or anything in it, is not known yet."""
    if isinstance(value, dict):
        return any(map(has_unknown, value.values()))
    return any(map(has_unknown, value)) if isinstance(value, list) else value == UNKNOWN
