"""What is generated from the schema is what is committed, and editors can use it."""

import copy
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from muster.definition import reference
from muster.definition.checks import CHECKS
from muster.definition.examples import example
from muster.definition.schema.cluster import Cluster
from muster.definition.schema_errors import plain_type

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "reference"
BASE = Path(__file__).parent / "base"


def base() -> Any:
    return yaml.safe_load((BASE / "group_vars/all/cluster.yml").read_text())


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = reference.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_committed_schema_is_the_generated_one() -> None:
    assert (FOLDER / reference.SCHEMA_FILE).read_text() == reference.schema_text(), (
        "run: muster schema --write"
    )


def test_committed_page_is_the_generated_one() -> None:
    assert (FOLDER / reference.PAGE_FILE).read_text() == reference.page_text(), (
        "run: muster schema --write"
    )


def test_inventories_fit_the_schema(validator: jsonschema.Draft202012Validator) -> None:
    files = sorted((ROOT / "inventories").glob("*/group_vars/all/cluster.yml"))
    assert files
    for file in [*files, BASE / "group_vars/all/cluster.yml"]:
        assert list(validator.iter_errors(yaml.safe_load(file.read_text()))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cluster", "nmae"), "x"),
        (("cluster", "name"), "Upper"),
        (("cluster", "nodes", "gpu", "memory_mib"), 0),
        (("cluster", "nodes", "gpu", "memory_mib"), "64G"),
        (("cluster", "nodes", "Bad_Name"), {"sockets": 1, "cores_per_socket": 1, "memory_mib": 1}),
        (("cluster", "partitions", "long", "max_time"), "5 days"),
        (("cluster", "partitions", "long", "state"), "open"),
        (("cluster", "users", "people", "Bob"), {"uid": 20003}),
        (("beside",), 1),
    ],
)
def test_an_editor_sees_what_is_wrong(
    validator: jsonschema.Draft202012Validator, path: tuple[str, ...], value: Any
) -> None:
    data = copy.deepcopy(base())
    here = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    assert len(list(validator.iter_errors(data))) == 1


def objects(schema: Any, path: str = "") -> list[tuple[str, Any]]:
    properties = []
    for name, model in schema["$defs"].items():
        properties += [
            (f"{name}.{key}", below) for key, below in model.get("properties", {}).items()
        ]
    return properties


def test_every_key_says_what_it_means() -> None:
    silent = [
        key for key, below in objects(reference.json_schema()) if not below.get("description")
    ]
    assert silent == []


def test_what_the_schema_has_for_an_example_is_possible() -> None:
    fields = [
        field
        for _, model in reference._models(Cluster, ("cluster",))
        for field in model.model_fields.values()
        if field.examples
    ]
    assert len(fields) > 9
    for field in fields:
        for example_value in field.examples or ():
            TypeAdapter(field.annotation).validate_python(example_value)
    models = {model for _, model in reference._models(Cluster, ("cluster",))}
    examples = [
        (model, example_value)
        for model in models
        for example_value in model.model_json_schema().get("examples", [])
    ]
    assert len(examples) >= 3
    for model, example_value in examples:
        model.model_validate(example_value)


def mappings() -> Iterator[tuple[str, str]]:
    """Each place of a mapping, those with a name of people's own too, and how one is shown."""
    for path, model in reference._models(Cluster, ("cluster",)):
        if ">" in path.split(".")[-1]:
            yield path, example(model)
        for key, field in model.model_fields.items():
            here, place = plain_type(field.annotation), f"{path}.{key}"
            if reference._type(field) == "mapping":
                yield place, example(here, field)
            while typing.get_origin(here) is dict:
                here, place = plain_type(typing.get_args(here)[1]), f"{place}.NAME"
                if typing.get_origin(here) is dict:
                    yield place, example(here)


def test_every_mapping_can_be_shown_in_one_short_line() -> None:
    for place, shown in mappings():
        assert shown.startswith("{"), place
        assert len(shown) < 160, f"{place}: {shown}"
        assert shown.count("...") <= 4, f"{place} needs an example: {shown}"
        assert "{NAME: ...}" not in shown, f"{place} needs an example"
        assert isinstance(yaml.safe_load(shown), dict), shown


def test_every_number_of_memory_has_its_unit() -> None:
    keys = dict(objects(reference.json_schema()))
    memory = {key: below for key, below in keys.items() if key.endswith("_mib")}
    assert len(memory) >= 4
    assert {below.get("x-unit") for below in memory.values()} == {"MiB"}


def test_the_page_lists_every_key_and_every_check() -> None:
    page = reference.page_text()
    for key, _ in objects(reference.json_schema()):
        assert f"\n| {key.split('.')[1]} | " in page
    for name in CHECKS:
        assert f"\n| {name} | " in page


def test_one_key_of_a_mapping_leaves_the_others_at_their_defaults() -> None:
    # Else `state_disk: {type: pd-ssd}` would shrink the disk to what another model's default is.
    incomplete = [
        (path, key, one)
        for path, model in reference._models(Cluster, ("cluster",))
        for key, field in model.model_fields.items()
        if isinstance(field.default, BaseModel)
        for one in field.default.model_fields_set
        if not type(field.default).model_fields[one].is_required()
    ]
    assert incomplete == []
