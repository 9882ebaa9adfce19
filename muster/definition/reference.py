"""JSON schema and reference page of the definition, made from its models and checks."""

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.definition.checks import CHECKS
from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import KINDS, STANDING, VIRTUAL, NodeSet
from muster.definition.schema_errors import plain_type

SCHEMA_FILE = "cluster.schema.json"
PAGE_FILE = "cluster.md"

_PAGE_HEAD = """\
# The definition of a cluster

<!-- Made by `muster schema --write`; edit muster/definition/ instead. -->

`inventories/<cluster>/group_vars/all/cluster.yml` holds one mapping, `cluster`, with the keys
below. `muster check <cluster>` reports all errors in it. With the first line

    # yaml-language-server: $schema=../../../../docs/reference/cluster.schema.json

an editor completes the keys. `<name>` stands for a name that you choose.
"""
_TABLE_HEAD = "| key | type | default | unit | meaning |\n|---|---|---|---|---|\n"
_CHECKS_HEAD = """\
## What `muster check` refuses

Each line is a check with its name; all errors are reported at once, as
`file:line: path: what is wrong; what to do`, and the exit code is 2. If a value has the wrong
shape, the other keys of its mapping are checked only after you correct it; a file that is not YAML
is checked only after you correct it too. Of one check at most 20 errors in a file are listed. The
last of them says how many more there are, and so does the one error for all hosts of a range, or
for one mistake at several places.

| check | refuses |
|---|---|
"""


def json_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of cluster.yml."""
    schema = Cluster.model_json_schema(ref_template="#/$defs/{model}")
    definitions = schema.pop("$defs")
    whole: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cluster.yml of Muster",
        "type": "object",
        "additionalProperties": False,
        "required": ["cluster"],
        "properties": {"cluster": {"$ref": "#/$defs/Cluster"}},
        "$defs": {**definitions, "Cluster": schema},
    }
    _both_kinds(whole["$defs"]["Cluster"]["properties"]["nodes"])
    for _, model in _models(Cluster, ()):
        content = whole["$defs"][model.__name__]
        # Titles repeat the names of classes and keys: of no use in an editor.
        content.pop("title", None)
        for key, field in model.model_fields.items():
            below = content["properties"][key]
            below.pop("title", None)
            # pydantic leaves both out where a key refers to another model or may be null.
            below["description"] = field.description
            if unit := _unit(field):
                below["x-unit"] = unit
    return whole


def schema_text() -> str:
    """The JSON schema as it is committed."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def page_text() -> str:
    """The reference page as it is committed."""
    sections = "\n".join(_sections())
    rows = "".join(f"| {check.name} | {check.summary} |\n" for check in _checks())
    return f"{_PAGE_HEAD}\n{sections}\n{_CHECKS_HEAD}{rows}"


def write(folder: Path) -> list[Path]:
    """Writes schema and page into a folder; returns the files."""
    files = {folder / SCHEMA_FILE: schema_text(), folder / PAGE_FILE: page_text()}
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return list(files)


def _checks() -> list[Any]:
    return [CHECKS[name] for name in sorted(CHECKS)]


def _models(
    model: type[BaseModel], path: tuple[str, ...], kind: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """A model and those below it, each with the path of its keys and its kind."""
    yield ".".join(path) + kind, model
    for key, field in model.model_fields.items():
        here: Any = plain_type(field.annotation)
        below = [*path, key]
        while typing.get_origin(here) is dict:
            here = typing.get_args(here)[1]
            below.append("<name>" if below[-1] != "<name>" else "<version>")
        here = plain_type(here)
        is_set = here == plain_type(NodeSet)
        kinds = (
            {f" ({name})": kind_model for name, kind_model in KINDS.items()}
            if is_set
            else {"": here}
        )
        for name, kind_model in kinds.items():
            if isinstance(kind_model, type) and issubclass(kind_model, BaseModel):
                yield from _models(kind_model, tuple(below), name)


def _both_kinds(nodes: dict[str, Any]) -> None:
    """Say in JSON schema how VMs and machines differ, so that an editor's errors are right."""
    machines, virtual = (
        {"$ref": f"#/$defs/{KINDS[kind].__name__}"} for kind in (STANDING, VIRTUAL)
    )
    nodes["additionalProperties"] = {
        "if": {"required": ["machine_type"]},
        "then": virtual,
        "else": machines,
    }


def _sections() -> Iterator[str]:
    """The keys of each mapping; mappings of one model refer to the first."""
    shown: dict[type[BaseModel], str] = {}
    for path, model in _models(Cluster, ("cluster",)):
        first = shown.setdefault(model, path)
        yield _section(path, model) if first == path else f"## {path}\n\nAs {first}.\n"


def _section(path: str, model: type[BaseModel]) -> str:
    about = " ".join((model.__doc__ or "").split())
    rows = "".join(
        f"| {key} | {_type(field)} | {_default(field)} | {_unit(field)} | {_meaning(field)} |\n"
        for key, field in model.model_fields.items()
    )
    return f"## {path}\n\n{about}\n\n{_TABLE_HEAD}{rows}"


def _meaning(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _type(field: FieldInfo) -> str:
    return _type_name(field.annotation)


def _type_name(annotation: Any) -> str:
    here = plain_type(annotation)
    arguments = typing.get_args(here)
    origin = typing.get_origin(here)
    if origin is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is list:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return "mapping"
    if arguments:
        return "text, number or yes/no"
    if issubclass(here, BaseModel):
        return "mapping"
    names = {str: "text", int: "whole number", bool: "true, false"}
    return names[here]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "see right"
    value = field.default
    if isinstance(value, BaseModel):
        return "see below"
    # As YAML spells it: null, true, "" and [].
    return value if isinstance(value, str) and value else json.dumps(value)


def _unit(field: FieldInfo) -> str:
    infos = [field]
    for option in typing.get_args(field.annotation):
        infos += [data for data in typing.get_args(option)[1:] if isinstance(data, FieldInfo)]
    extras = [info.json_schema_extra for info in infos]
    return next((str(e["x-unit"]) for e in extras if isinstance(e, dict) and "x-unit" in e), "")
