"""GPUs that are attached to instances, not part of a machine type."""

from typing import Any

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud

T4 = "nvidia-tesla-t4"
LINK = f"projects/demo-project/{ZONE}/acceleratorTypes"
ENDED = {"onHostMaintenance": "TERMINATE"}


def with_gpus(
    count: int, kind: str = f"{LINK}/{T4}", machine_type: str = "n1-standard-8", **more: Any
) -> dict[str, Any]:
    return instance(
        "one",
        machineType=f"{ZONE}/machineTypes/{machine_type}",
        guestAccelerators=[{"acceleratorType": kind, "acceleratorCount": count}],
        **{"scheduling": ENDED, **more},
    )


def used(ask: Caller) -> dict[str, float]:
    listed = [*ask.get(REGION)["quotas"], *ask.get("")["quotas"]]
    return {quota["metric"]: quota["usage"] for quota in listed if "GPUS" in quota["metric"]}


@pytest.mark.parametrize(
    ("scheduling", "metric"),
    [(ENDED, "NVIDIA_T4_GPUS"), ({"provisioningModel": "SPOT"}, "PREEMPTIBLE_NVIDIA_T4_GPUS")],
)
def test_they_are_shown_and_have_their_metric(fake: Cloud, lab: Caller, scheduling, metric):
    fake.settings.quotas = {"europe-west4": {metric: 3}}
    lab.post(f"{ZONE}/instances", with_gpus(2, scheduling=scheduling))
    (shown,) = lab.get(f"{ZONE}/instances/one")["guestAccelerators"]
    assert shown["acceleratorType"].endswith(f"/compute/v1/{LINK}/{T4}")
    assert shown["acceleratorCount"] == 2
    assert {name for name, count in used(lab).items() if count == 2} == {metric, "GPUS_ALL_REGIONS"}
    more = with_gpus(2, scheduling=scheduling) | {"name": "more"}
    (error,) = lab.ok("POST", f"{ZONE}/instances", more)["error"]["errors"]
    assert error["message"] == f"Quota '{metric}' exceeded.  Limit: 3.0 in region europe-west4."
    lab.delete(f"{ZONE}/instances/one")
    assert not any(used(lab).values())


def test_a_template_makes_instances_with_them(lab: Caller):
    properties = with_gpus(1, T4) | {"machineType": "n1-standard-8"}
    del properties["name"]
    template = "global/instanceTemplates"
    lab.post(template, {"name": "gpu", "properties": properties})
    kept = lab.get(f"{template}/gpu")["properties"]["guestAccelerators"]
    assert kept == [{"acceleratorType": T4, "acceleratorCount": 1}]
    body = {"count": "2", "namePattern": "n-#", "sourceInstanceTemplate": f"{template}/gpu"}
    lab.post(f"{ZONE}/instances/bulkInsert", body)
    for name in ("n-1", "n-2"):
        (shown,) = lab.get(f"{ZONE}/instances/{name}")["guestAccelerators"]
        assert shown["acceleratorType"].endswith(f"{LINK}/{T4}")
    assert used(lab)["NVIDIA_T4_GPUS"] == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        # The API's own words, but for those of a type that there is not.
        (with_gpus(1, scheduling={}), "do not support live migration"),
        (with_gpus(1, scheduling={"onHostMaintenance": "MIGRATE"}), "support live migration"),
        (
            with_gpus(8),
            "Invalid value for field 'resource.guestAccelerators[0].acceleratorCount': '8'. Number "
            "of accelerator cards attached to an instance must be one of [1, 2, 4].",
        ),
        (
            with_gpus(1, "nvidia-tesla-v100", "n1-standard-16"),
            "At most 12 vCPUs can be used along with 1 accelerator cards in an instance.",
        ),
        (
            with_gpus(1, machine_type="e2-standard-2"),
            "[e2-standard-2, nvidia-tesla-t4] features are not compatible for creating instance.",
        ),
        (with_gpus(1, "nvidia-tesla-t5"), "'nvidia-tesla-t5' does not exist in zone"),
        (with_gpus(1, f"zones/europe-west4-b/acceleratorTypes/{T4}"), "does not exist in zone"),
    ],
)
def test_what_can_not_be_is_refused(lab: Caller, body: dict[str, Any], said: str):
    refused = lab.refused("POST", f"{ZONE}/instances", body)
    assert refused[0] == 400
    assert said in refused[2]


def test_what_has_gpus_can_not_be_moved_later_either(lab: Caller):
    lab.post(f"{ZONE}/instances", with_gpus(1))
    path = f"{ZONE}/instances/one/setScheduling"
    refused = lab.refused("POST", path, {"onHostMaintenance": "MIGRATE"})
    assert "do not support live migration" in refused[2]
