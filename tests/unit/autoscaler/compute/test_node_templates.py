"""The node sets in the controller's metadata."""

import json

import pytest

from muster.autoscaler.compute.node_templates import SetsError, parse
from muster.autoscaler.reconcile.model import Choice, NodeSet

CHOICE = {"template": "projects/p/T", "zone": "z-a", "machine_type": "n1", "spot": True}


def test_sets_are_read_with_their_choices_in_order():
    others = [CHOICE | {"spot": False}, CHOICE | {"spot": False, "gpus": "t4:1"}]
    text = json.dumps({"debug": {"choices": [CHOICE, *others], "compact": False}})
    choices = (
        Choice("projects/p/T", "z-a", "n1", True),
        Choice("projects/p/T", "z-a", "n1"),
        Choice("projects/p/T", "z-a", "n1", gpus="t4:1"),
    )
    assert parse(text) == {"debug": NodeSet("debug", choices)}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"d": 1}', '{"d": {"choices": []}}', '{"d": {"choices": [{}], "compact": false}}'],
)
def test_text_that_pulumi_did_not_write_is_an_error(text: str):
    with pytest.raises(SetsError, match=r"muster-templates can't be read: .*; run `pulumi up`"):
        parse(text)
