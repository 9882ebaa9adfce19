"""The dynamic resources: what replaces or changes them, and that an id is enough to delete."""

import pickle
from typing import Any

import dill
import pytest
from pulumi.dynamic.dynamic import serialize_provider

from muster.gcp import dynamic_resources, first_boot, image, sweep
from muster.gcp.api import CloudError, Compute
from muster.gcp.dynamic_resources import (
    ClaimProvider,
    FirstBootProvider,
    ImageProvider,
    NodeSweeperProvider,
    SweeperProvider,
)

WHERE = {"project": "demo-project", "cluster": "lab"}
SET = WHERE | {"node_set": "debug"}
VM = {"project": "demo-project", "zone": "europe-west4-a", "name": "lab-controller"}


def test_a_name_is_claimed_once(compute: Compute):
    first = ClaimProvider().create(WHERE)
    assert first.id == "projects/demo-project/clusters/lab"
    assert first.outs is not None
    assert first.outs["suffix"] != (ClaimProvider().create(WHERE).outs or {})["suffix"]
    network = {"name": "lab", "autoCreateSubnetworks": False}
    compute.wait(compute.post("global/networks", network), 10)
    with pytest.raises(CloudError, match="another cluster has the name"):
        ClaimProvider().create(WHERE)


@pytest.mark.parametrize(
    ("provider", "old", "new", "replaces"),
    [
        (ClaimProvider(), WHERE, WHERE | {"suffix": "x"}, []),
        (ClaimProvider(), WHERE, WHERE | {"cluster": "b"}, ["cluster"]),
        (SweeperProvider(), WHERE, WHERE, []),
        (SweeperProvider(), WHERE, WHERE | {"project": "b"}, ["project"]),
        (NodeSweeperProvider(), SET, SET, []),
        (NodeSweeperProvider(), SET, SET | {"node_set": "b"}, ["node_set"]),
        (ImageProvider(), WHERE | {"digest": "1"}, WHERE | {"digest": "2"}, ["digest"]),
        (ImageProvider(), WHERE | {"zone": "a"}, WHERE | {"zone": "b", "archive": "x"}, []),
        (FirstBootProvider(), VM | {"bundle": "1"}, VM | {"bundle": "2"}, []),
        (FirstBootProvider(), VM, VM | {"zone": "b"}, ["zone"]),
    ],
)
def test_what_replaces_one(provider: Any, old: dict, new: dict, replaces: list[str]):
    difference = provider.diff("id", old, new)
    assert difference.replaces == replaces
    assert not difference.delete_before_replace


def test_a_first_boot_is_waited_for_again_for_a_bundle_or_another_vm():
    old = VM | {"bundle": "1", "instance_id": "7"}
    assert not FirstBootProvider().diff("id", old, dict(old)).changes
    assert FirstBootProvider().diff("id", old, old | {"bundle": "2"}).changes
    assert FirstBootProvider().diff("id", old, old | {"instance_id": "8"}).changes


def test_a_delete_needs_its_id_alone(compute: Compute, monkeypatch: pytest.MonkeyPatch):
    gone: list[tuple[str, ...]] = []
    monkeypatch.setattr(image, "delete", lambda c, name: gone.append((c.project, name)))
    monkeypatch.setattr(sweep, "everything", lambda c, name, _: gone.append((c.project, name)))
    ImageProvider().delete("projects/demo-project/global/images/lab-1-2", {})
    SweeperProvider().delete("projects/example.com:p/clusters/lab", {})
    monkeypatch.setattr(sweep, "nodes", lambda c, *words: gone.append((c.project, *words[:2])))
    made = NodeSweeperProvider().create(WHERE | {"node_set": "gpu-a"})
    NodeSweeperProvider().delete(made.id, {})
    assert gone == [
        ("demo-project", "lab-1-2"),
        ("example.com:p", "lab"),
        ("demo-project", "lab", "gpu-a"),
    ]
    with pytest.raises(CloudError, match="is not an id of Muster"):
        ImageProvider().delete("lab-1-2", {})


def test_a_wait_is_for_the_vm_and_bundle_of_the_props(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
):
    waited: list[tuple[str, ...]] = []
    monkeypatch.setattr(first_boot, "wait", lambda _c, *words: waited.append(words[:3]))
    props = VM | {"bundle": "1", "instance_id": "7"}
    made = FirstBootProvider().create(props)
    assert made.id == "projects/demo-project/zones/europe-west4-a/instances/lab-controller"
    FirstBootProvider().update(made.id, props, props | {"bundle": "2"})
    place = ("europe-west4-a", "lab-controller")
    assert waited == [(*place, "1"), (*place, "2")]


@pytest.mark.parametrize(
    "kind",
    [ClaimProvider, FirstBootProvider, ImageProvider, NodeSweeperProvider, SweeperProvider],
)
def test_the_state_holds_a_name_not_code(kind: type):
    """Otherwise each change of the code would change the resource."""
    import base64

    pickled = base64.b64decode(serialize_provider(kind()))
    assert len(pickled) < 100
    assert isinstance(dill.loads(pickled), getattr(dynamic_resources, kind.__name__))  # noqa: S301
    assert isinstance(pickle.loads(pickled), kind)  # noqa: S301
