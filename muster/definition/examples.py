"""How a mapping of the definition is written, in one line, for the remedy of an error.

Where its keys are not enough the schema has an example, as `examples` of JSON schema: for a key, or
for all mappings of one kind.
"""

import typing
from typing import Any

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.definition.schema_errors import plain_type


def example(kind: Any, field: FieldInfo | None = None) -> str:
    """Return a value of this type, as YAML; `field`: what the schema says of its key.

    A mapping is shown with its required keys, or with all keys if none is required.
    """
    if field is not None and field.examples:
        return _in_one_line(field.examples[0])
    here = plain_type(kind)
    if not _is_model(here):
        return _below(here)
    for shown in here.model_json_schema().get("examples", []):
        return _in_one_line(shown)
    needed = {
        key: field_info for key, field_info in here.model_fields.items() if field_info.is_required()
    }
    if needed:
        pairs = [
            f"{key}: {example(field_info.annotation, field_info)}"
            for key, field_info in needed.items()
        ]
    else:
        pairs = [f"{key}: ..." for key in here.model_fields]
    return f"{{{', '.join(pairs)}}}"


def text_of(text: str) -> str:
    """Return a key or an item of a list as YAML has it: in quotes where it would be no text."""
    return _in_one_line([text])[1:-1]


def _below(kind: Any) -> str:
    if typing.get_origin(kind) is dict:
        return f"{{NAME: {example(typing.get_args(kind)[1])}}}"
    return "..."


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _in_one_line(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return text.strip()
