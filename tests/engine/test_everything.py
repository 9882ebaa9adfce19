"""One resource of each type, through the engine: create, no change, refresh, destroy."""

from stackkit import Stack, texts_of_nothing

from muster_sandbox.provider import mappings
from muster_sandbox.provider.resource import MAPPINGS

assert mappings


def test_all_types_are_made_stay_unchanged_and_go(everything: Stack):
    made = everything.up()
    kinds = {step.kind.removeprefix("gcp:") for step in made.steps if step.op == "create"}
    assert kinds - {"pulumi:pulumi:Stack", "pulumi:providers:gcp"} == MAPPINGS.keys()

    outputs = everything.outputs()
    assert outputs["address"].startswith("10.64.")
    assert outputs["account"] == "all-node@demo-project.iam.gserviceaccount.com"
    assert outputs["url"] == "gs://all-bundle"
    assert "?uniqueId=" in outputs["template"]
    assert outputs["image"].startswith("debian-12-")
    assert outputs["public"]
    assert texts_of_nothing(everything.export()) == []
    assert "planted-5e1c" not in str(everything.export())

    assert everything.preview().changes == []
    assert everything.up().changes == []
    assert everything.refresh().changes == []
    assert everything.up().changes == []
    gone = everything.destroy()
    assert gone.counts["delete"] == made.counts["create"]
    assert everything.resources() == {}
