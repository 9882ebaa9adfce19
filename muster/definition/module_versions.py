"""Modules of the definition with the content of a version where their versions belong."""

import re
from typing import Any

from muster.definition.schema.software import SoftwareVersion
from muster.definition.schema_errors import UNVERSIONED, SchemaError, is_collection, plain_type
from muster.definition.yaml_file import KeyPath

_NAME_WITH_VERSION = re.compile(r"(.+)/(v?[0-9][A-Za-z0-9_.+-]*)")
_STAND_IN = "1"
_FIELDS = SoftwareVersion.model_fields
_MAPPINGS = {key for key, field in _FIELDS.items() if is_collection(plain_type(field.annotation))}


def put_right(data: Any) -> tuple[Any, list[SchemaError]]:
    """Return the definition with a version above such content, and an error for each module."""
    modules = _below(_below(data, "software"), "modules")
    if not isinstance(modules, dict):
        return data, []
    right = {name: content for name, content in modules.items() if not _is_wrong(name, content)}
    errors = []
    for name in [name for name in modules if name not in right]:
        content = dict(modules[name] or {})
        version, family = content.pop("version", None), name
        version = version if isinstance(version, str) else None
        meant: KeyPath = ("software", "modules", name)
        path = meant
        if named := _NAME_WITH_VERSION.fullmatch(name):
            family, version = named.groups()
            meant = ("software", "modules", family, version)
        context = {"family": family, "keys": tuple(content), "meant": meant}
        errors.append(SchemaError(UNVERSIONED, path, path, version, context))
        others = right.get(family)
        right[family] = {
            version or _STAND_IN: content,
            **(others if isinstance(others, dict) else {}),
        }
    return {**data, "software": {**data["software"], "modules": right}}, errors


def _below(data: Any, key: str) -> Any:
    return data.get(key) if isinstance(data, dict) else None


def _is_wrong(name: Any, content: Any) -> bool:
    if not isinstance(name, str) or not isinstance(content, dict | None):
        return False
    if not content:
        return _NAME_WITH_VERSION.fullmatch(name) is not None
    # The name of a version may stand beside that of its module: it is not indented far enough.
    if re.fullmatch("v?[0-9][^/]*", name):
        return False
    return 2 * sum(_is_of_version(*item) for item in content.items()) > len(content)


def _is_of_version(key: str, value: Any) -> bool:
    if isinstance(value, dict):
        # A version may be called `env`.
        return key in _MAPPINGS and not value.keys() & _FIELDS.keys()
    return key in _FIELDS or key == "version"
