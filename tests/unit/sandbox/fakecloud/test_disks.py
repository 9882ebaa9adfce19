"""Disks, snapshots, images and resource policies."""

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud
from muster_sandbox.fakecloud.clock import ManualClock

DEBIAN = "projects/debian-cloud/global/images/family/debian-12"


def disk(name: str, **members: object) -> dict[str, object]:
    return {"name": name, "sizeGb": "10", "type": f"{ZONE}/diskTypes/pd-balanced", **members}


def test_a_disk_names_the_concrete_image(ask: Caller):
    ask.post(f"{ZONE}/disks", disk("state", sourceImage=DEBIAN))
    stored = ask.get(f"{ZONE}/disks/state")
    assert stored["sourceImage"].endswith(
        "/debian-cloud/global/images/debian-12-bookworm-v20261110"
    )
    assert stored["type"].endswith("/zones/europe-west4-a/diskTypes/pd-balanced")
    assert (stored["status"], stored["sizeGb"]) == ("READY", "10")


def test_an_empty_disk_has_a_size_of_its_own(ask: Caller):
    ask.post(f"{ZONE}/disks", {"name": "empty"})
    stored = ask.get(f"{ZONE}/disks/empty")
    assert stored["sizeGb"] == "500"
    assert "sourceImage" not in stored


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (disk("d", sourceImage="projects/debian-cloud/global/images/family/none"), "cannot be"),
        (disk("d", sourceImage="projects/nobody/global/images/x"), "projects/nobody"),
        (disk("d", sourceImage=DEBIAN, sizeGb="5"), "smaller than the image size (10 GB)"),
        (disk("d", type=f"{ZONE}/diskTypes/floppy"), "diskType resource cannot be found"),
    ],
)
def test_a_disk_that_cant_be_is_refused(ask: Caller, body, message):
    assert message in ask.refused("POST", f"{ZONE}/disks", body)[2]


def test_a_disk_grows_and_never_shrinks(ask: Caller):
    ask.post(f"{ZONE}/disks", disk("state"))
    ask.post(f"{ZONE}/disks/state/resize", {"sizeGb": "20"})
    assert ask.get(f"{ZONE}/disks/state")["sizeGb"] == "20"
    assert ask.refused("POST", f"{ZONE}/disks/state/resize", {"sizeGb": "15"})[0] == 400


def test_an_attached_disk_cant_be_deleted(lab: Caller):
    lab.post(f"{ZONE}/disks", disk("state"))
    lab.post(f"{ZONE}/instances", instance("one"))
    body = {"source": f"projects/demo-project/{ZONE}/disks/state", "deviceName": "state"}
    lab.post(f"{ZONE}/instances/one/attachDisk", body)
    one = lab.get(f"{ZONE}/instances/one")
    assert lab.get(f"{ZONE}/disks/state")["users"] == [one["selfLink"]]
    status, reason, message = lab.refused("DELETE", f"{ZONE}/disks/state")
    assert (status, reason) == (400, "resourceInUseByAnotherResource")
    assert message == (
        "The disk resource 'projects/demo-project/zones/europe-west4-a/disks/state' is already "
        "being used by 'projects/demo-project/zones/europe-west4-a/instances/one'"
    )
    lab.post(f"{ZONE}/instances", instance("two"))
    assert lab.refused("POST", f"{ZONE}/instances/two/attachDisk", body)[0] == 400
    lab.post(f"{ZONE}/instances/one/detachDisk", deviceName="state")
    assert "users" not in lab.get(f"{ZONE}/disks/state")
    lab.delete(f"{ZONE}/disks/state")


def test_a_disk_outlives_its_instance_unless_marked(lab: Caller):
    lab.post(f"{ZONE}/disks", disk("state"))
    disks = [*instance("one")["disks"], {"source": f"{ZONE}/disks/state", "deviceName": "state"}]
    lab.post(f"{ZONE}/instances", instance("one", disks=disks))
    lab.delete(f"{ZONE}/instances/one")
    assert lab.refused("GET", f"{ZONE}/disks/one")[0] == 404
    assert "users" not in lab.get(f"{ZONE}/disks/state")
    lab.post(f"{ZONE}/instances", instance("one", disks=disks))
    lab.post(f"{ZONE}/instances/one/setDiskAutoDelete", deviceName="state", autoDelete="true")
    lab.delete(f"{ZONE}/instances/one")
    assert lab.refused("GET", f"{ZONE}/disks/state")[0] == 404


def test_a_schedule_is_used_by_its_disk(ask: Caller):
    schedule = {"hourlySchedule": {"hoursInCycle": 6, "startTime": "00:00"}}
    policy = {"name": "daily", "snapshotSchedulePolicy": {"schedule": schedule}}
    ask.post(f"{REGION}/resourcePolicies", policy)
    ask.post(f"{ZONE}/disks", disk("state"))
    link = {"resourcePolicies": [f"projects/demo-project/{REGION}/resourcePolicies/daily"]}
    ask.post(f"{ZONE}/disks/state/addResourcePolicies", link)
    assert ask.get(f"{ZONE}/disks/state")["resourcePolicies"] == [
        ask.get(f"{REGION}/resourcePolicies/daily")["selfLink"]
    ]
    refused = ask.delete(f"{REGION}/resourcePolicies/daily")
    assert "disks/state" in refused["error"]["errors"][0]["message"]
    ask.post(f"{ZONE}/disks/state/removeResourcePolicies", link)
    assert "error" not in ask.delete(f"{REGION}/resourcePolicies/daily")


def test_a_policy_is_of_one_sort(ask: Caller):
    assert (
        "Exactly one policy" in ask.refused("POST", f"{REGION}/resourcePolicies", {"name": "p"})[2]
    )


def test_a_disk_comes_from_a_snapshot(ask: Caller):
    ask.post(f"{ZONE}/disks", disk("state"))
    ask.post(f"{ZONE}/disks/state/createSnapshot", {"name": "monday"})
    assert ask.get("global/snapshots/monday")["sourceDisk"].endswith("/disks/state")
    ask.post(f"{ZONE}/disks", {"name": "again", "sourceSnapshot": "global/snapshots/monday"})
    assert ask.get(f"{ZONE}/disks/again")["sizeGb"] == "10"
    ask.delete("global/snapshots/monday")


def image(name: str, family: str = "slurm") -> dict[str, object]:
    return {"name": name, "family": family, "sourceDisk": f"{ZONE}/disks/builder"}


def test_a_family_gives_its_newest_image(fake: Cloud, ask: Caller):
    assert isinstance(fake.clock, ManualClock)
    assert ask.refused("GET", "global/images/family/slurm")[:2] == (404, "notFound")
    ask.post(f"{ZONE}/disks", disk("builder", sourceImage=DEBIAN))
    for name in ("slurm-b", "slurm-a"):
        ask.post("global/images", image(name))
        fake.clock.advance(60)
    newest = ask.get("global/images/family/slurm")
    assert (newest["name"], newest["status"]) == ("slurm-a", "READY")
    assert newest["sourceDiskId"] == ask.get(f"{ZONE}/disks/builder")["id"]
    ask.post(f"{ZONE}/disks", disk("d", sourceImage="global/images/family/slurm"))
    assert ask.get(f"{ZONE}/disks/d")["sourceImage"] == newest["selfLink"]
    ask.delete("global/images/slurm-a")
    assert ask.get("global/images/family/slurm")["name"] == "slurm-b"


def test_a_public_family_is_no_image_of_that_name(ask: Caller):
    """The provider asks for images/debian-12 first, which must be 404."""
    images = "global/images"
    assert ask.refused("GET", f"{images}/debian-12", project="debian-cloud")[0] == 404
    family = ask.get(f"{images}/family/debian-12", project="debian-cloud")
    assert family["name"].startswith("debian-12-bookworm-v")


def test_an_image_isnt_made_of_a_disk_in_use(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("builder"))
    refused = lab.refused("POST", "global/images", image("slurm-1"))
    assert refused[:2] == (400, "resourceInUseByAnotherResource")
    lab.post("global/images", image("slurm-0"), forceCreate="true")
    lab.post(f"{ZONE}/instances/builder/stop")
    lab.post("global/images", image("slurm-1"))


def test_an_image_that_is_being_made_cant_be_used(fake: Cloud, ask: Caller):
    assert isinstance(fake.clock, ManualClock)
    ask.post(f"{ZONE}/disks", disk("builder", sourceImage=DEBIAN))
    fake.settings.latency_seconds = {"compute.images.insert": 120}
    ask.post("global/images", image("slurm-1"))
    assert ask.get("global/images/slurm-1")["status"] == "PENDING"
    assert ask.refused("GET", "global/images/family/slurm")[0] == 404
    from_it = disk("d", sourceImage="global/images/slurm-1")
    assert ask.refused("POST", f"{ZONE}/disks", from_it)[1] == "resourceNotReady"
    fake.clock.advance(120)
    ask.post(f"{ZONE}/disks", from_it)


def test_an_image_comes_from_a_file(ask: Caller):
    raw = {"containerType": "TAR", "source": "https://storage.googleapis.com/b/disk.tar.gz"}
    ask.post("global/images", {"name": "raw", "rawDisk": raw})
    stored = ask.get("global/images/raw")
    assert stored["rawDisk"] == raw
    labels = {"labels": {"a": "b"}, "labelFingerprint": stored["labelFingerprint"]}
    ask.post("global/images/raw/setLabels", labels)
    assert ask.get("global/images/raw")["labels"] == {"a": "b"}
    assert "Exactly one source" in ask.refused("POST", "global/images", {"name": "x"})[2]
