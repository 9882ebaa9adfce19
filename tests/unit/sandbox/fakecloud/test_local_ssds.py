"""Local SSDs: disks without their own resource, created and deleted with their instance."""

from typing import Any

import pytest
from fakecloud_calls import LOCAL_SSD, REGION, ZONE, Caller, instance

TEMPLATE = "global/instanceTemplates"


def with_ssds(count: int, machine_type: str = "n1-standard-2", **changes: Any) -> dict[str, Any]:
    body = instance("one", machineType=f"{ZONE}/machineTypes/{machine_type}")
    body["disks"] += [LOCAL_SSD | changes] * count
    return body


def test_they_are_listed_in_the_instance_and_are_no_disks(lab: Caller):
    lab.post(f"{ZONE}/instances", with_ssds(2))
    boot, *ssds = lab.get(f"{ZONE}/instances/one")["disks"]
    assert boot["type"] == "PERSISTENT"
    assert [ssd["deviceName"] for ssd in ssds] == ["local-ssd-0", "local-ssd-1"]
    for number, ssd in enumerate(ssds, 1):
        assert "source" not in ssd
        fields = {key: ssd[key] for key in ("type", "interface", "diskSizeGb", "index")}
        assert fields == {
            "type": "SCRATCH",
            "interface": "NVME",
            "diskSizeGb": "375",
            "index": number,
        }
        assert (ssd["autoDelete"], ssd["boot"]) == (True, False)
    assert [disk["name"] for disk in lab.get(f"{ZONE}/disks")["items"]] == ["one"]
    lab.delete(f"{ZONE}/instances/one")
    assert "items" not in lab.get(f"{ZONE}/disks")


def test_a_template_makes_instances_with_them(lab: Caller):
    properties = with_ssds(1) | {"machineType": "n1-standard-2"}
    del properties["name"]
    # A template has no zone, so its disks have only a type's name.
    parameters = {"diskType": "local-ssd", "diskSizeGb": "375"}
    properties["disks"][1] = LOCAL_SSD | {"initializeParams": parameters}
    lab.post(TEMPLATE, {"name": "debug", "properties": properties})
    body = {"count": "2", "namePattern": "n-#", "sourceInstanceTemplate": f"{TEMPLATE}/debug"}
    lab.post(f"{ZONE}/instances/bulkInsert", body)
    for name in ("n-1", "n-2"):
        kinds = [disk["type"] for disk in lab.get(f"{ZONE}/instances/{name}")["disks"]]
        assert kinds == ["PERSISTENT", "SCRATCH"]
    quotas = {quota["metric"]: quota["usage"] for quota in lab.get(REGION)["quotas"]}
    assert quotas["LOCAL_SSD_TOTAL_GB"] == 750


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (with_ssds(9), "number of local SSDs is not supported for the machine type n1-standard-2"),
        (with_ssds(1, "e2-standard-2"), "not supported for the machine type e2-standard-2"),
        (with_ssds(1, initializeParams={"diskType": f"{ZONE}/diskTypes/pd-ssd"}), "local-ssd"),
        (
            with_ssds(
                1, initializeParams={"diskType": f"{ZONE}/diskTypes/local-ssd", "diskSizeGb": "100"}
            ),
            "375 GB",
        ),
        (with_ssds(1, interface="SATA"), "SATA"),
    ],
)
def test_what_can_not_be_is_refused(lab: Caller, body: dict[str, Any], said: str):
    refused = lab.refused("POST", f"{ZONE}/instances", body)
    assert refused[0] == 400
    assert said in refused[2]
