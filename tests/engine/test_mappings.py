"""The stand-in's tables agree with pulumi_gcp's classes, and their refusals name the reason."""

from collections.abc import Mapping
from typing import Any

import pytest
from pulumi import _types

from muster_sandbox.provider import mappings, provider, schema
from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.resource import MAPPINGS
from muster_sandbox.provider.values import DEFAULTS

KINDS = sorted(MAPPINGS)
assert mappings


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_an_input_of_the_type(kind: str):
    assert list(strangers(MAPPINGS[kind].fields, schema.inputs(kind))) == []


def strangers(fields: Mapping[str, Field], known: Mapping[str, schema.Property], path: str = ""):
    """Yield fields that the type lacks, or has in another shape."""
    for name, field in fields.items():
        expected = known.get(name)
        if expected is None:
            yield f"{path}{name}: no such input"
        elif (field.fields is None) != (expected.fields is None):
            yield f"{path}{name}: nested in one of the two only"
        elif field.fields is not None:
            if field.many != expected.many:
                yield f"{path}{name}: a list in one of the two only"
            yield from strangers(field.fields, expected.fields or {}, f"{path}{name}.")


@pytest.mark.parametrize("kind", KINDS)
def test_every_required_input_is_mapped_and_every_output_is_one(kind: str):
    required = {name for name, item in schema.inputs(kind).items() if item.required}
    assert required <= MAPPINGS[kind].fields.keys()
    assert set(MAPPINGS[kind].outputs) <= set(_types.resource_types(schema.class_of(kind)))


NETWORK = "compute/network:Network"
TEMPLATE = "compute/instanceTemplate:InstanceTemplate"


def scratch(**members: Any) -> dict[str, Any]:
    """A template with such a scratch disk."""
    return {"machineType": "n1-standard-2", "disks": [{"type": "SCRATCH", **members}]}


@pytest.mark.parametrize(
    ("kind", "inputs", "sentence"),
    [
        (NETWORK, {"name": "n", "mtuu": 1500}, "mtuu is no input"),
        (NETWORK, {"name": "n", "mtu": "big"}, "mtu is 'big'; expected int"),
        (NETWORK, {"name": "n", "mtu": True}, "mtu is True; expected int"),
        (NETWORK, {"name": "n", "networkProfile": "p"}, "maps no input networkProfile"),
        ("compute/subnetwork:Subnetwork", {"name": "s"}, "network is required and left out"),
        (
            "compute/firewall:Firewall",
            {"network": "n", "allows": [{"protocol": "tcp", "port": ["22"]}]},
            "allows[0].port is no input",
        ),
        (
            "compute/firewall:Firewall",
            {"network": "n", "allows": {"protocol": "tcp"}},
            "expected a list",
        ),
        ("compute/route:Route", {}, "no mapping for compute/route:Route"),
        ("compute/nothing:Nothing", {}, "pulumi_gcp has no type"),
        (
            "compute/instance:Instance",
            {
                "bootDisk": {"interface": "NVME"},
                "machineType": "n1-standard-2",
                "networkInterfaces": [{"network": "n"}],
            },
            "maps no input bootDisk.interface",
        ),
        (TEMPLATE, scratch(diskType="local-ssd"), "SCRATCH disks must be one of [375 3000] GB"),
        (TEMPLATE, scratch(diskSizeGb=375), "and only these, are local-ssd"),
    ],
)
def test_what_the_real_provider_or_the_stand_in_can_not_take_is_refused(
    kind: str, inputs: dict, sentence: str
):
    refused = provider.refusals(kind, inputs)
    assert len(refused) == 1
    assert sentence in refused[0][1]


def test_what_is_not_known_yet_and_the_names_of_defaults_pass():
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    inputs = {"network": unknown, "allows": unknown, "priority": unknown, DEFAULTS: ["name"]}
    assert provider.refusals("compute/firewall:Firewall", inputs) == []


def test_the_schema_is_the_same_from_its_file(tmp_path, monkeypatch):
    fresh = schema.inputs.__wrapped__(NETWORK)
    monkeypatch.setenv("MUSTER_PROVIDER_CACHE", str(tmp_path))
    written = schema.inputs.__wrapped__(NETWORK)
    monkeypatch.setattr(schema, "class_of", lambda *_: pytest.fail("the file was not read"))
    assert schema.inputs.__wrapped__(NETWORK) == written == fresh
