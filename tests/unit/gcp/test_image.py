"""The image is built, or nothing is left of the attempt."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_guests import Script

from muster.gcp import image
from muster.gcp.api import CloudError, Compute
from muster.gcp.builder_vm import startup_script
from muster.gcp.image import Build
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.server import Server

DIGEST = "0123456789abcdef" * 4
ZONE = "zones/europe-west4-a"


@pytest.fixture
def wanted(net: str, cloud: Server, compute: Compute) -> Build:
    email = account(cloud, "lab-builder")
    return Build(
        project=compute.project,
        cluster="lab",
        zone="europe-west4-a",
        os="debian-12",
        digest=DIGEST,
        archive=f"gs://demo-project-lab-muster/image-{DIGEST}.tar.gz",
        machine_type="n1-standard-2",
        subnetwork=net,
        account=email,
    )


def account(cloud: Server, name: str) -> str:
    import httpx

    answer = httpx.post(
        f"{cloud.url}/iam/v1/projects/demo-project/serviceAccounts",
        json={"accountId": name, "serviceAccount": {}},
        headers={"Authorization": "Bearer owner"},
        trust_env=False,
    )
    assert answer.is_success, answer.text
    return str(answer.json()["email"])


@pytest.fixture
def left(compute: Compute) -> Callable[[], list[str]]:
    """What is left in the project: instances, disks, images."""

    def look() -> list[str]:
        in_zones = [*compute.everywhere("instances"), *compute.everywhere("disks")]
        return sorted(item["name"] for item in [*in_zones, *compute.list("global/images")])

    return look


def test_an_image_is_made_and_its_builder_is_gone(
    compute: Compute, wanted: Build, script: Script, left: Callable[[], list[str]]
):
    said: list[str] = []
    script.lasts = lambda step: not any(line.endswith(step) for line in said)
    made = image.build(compute, wanted, said.append)
    assert made.name.startswith("lab-0123456789ab-")
    assert left() == [made.name]
    finished = compute.get(f"global/images/{made.name}")
    assert finished["family"] == "lab"
    assert finished["status"] == "READY"
    labels = {"muster-cluster": "lab", "muster-role": "image", "muster-digest": DIGEST[:12]}
    assert finished["labels"] == labels
    assert compute.get("global/images/family/lab")["name"] == made.name
    assert said[:3] == [
        "starting the builder lab-builder-01234567",
        "lab-builder-01234567: Fetch the bundle",
        "lab-builder-01234567: Install SLURM",
    ]
    image.delete(compute, made.name)
    image.delete(compute, made.name)
    assert left() == []


def test_two_images_of_one_digest_have_two_names(compute: Compute, wanted: Build):
    names = {image.build(compute, wanted, print).name for _ in range(2)}
    assert len(names) == 2


def test_the_builder_is_private_and_ends_by_itself(wanted: Build):
    body = image.builder(wanted, "lab-builder-01234567")
    assert body["networkInterfaces"] == [{"subnetwork": wanted.subnetwork, "nicType": "GVNIC"}]
    assert body["shieldedInstanceConfig"] == {
        "enableSecureBoot": True,
        "enableVtpm": True,
        "enableIntegrityMonitoring": True,
    }
    assert body["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert body["scheduling"]["onHostMaintenance"] == "MIGRATE"
    whole_host = image.builder(replace(wanted, machine_type="h3-standard-88"), "lab-builder-0")
    assert whole_host["scheduling"]["onHostMaintenance"] == "TERMINATE"
    seconds = int(body["scheduling"]["maxRunDuration"]["seconds"])
    assert seconds > image.BUILD_TIMEOUT_S + image.POWER_OFF_TIMEOUT_S
    assert body["labels"] == {"muster-cluster": "lab", "muster-role": "builder"}
    assert body["disks"][0]["initializeParams"]["labels"] == body["labels"]
    metadata = {item["key"]: item["value"] for item in body["metadata"]["items"]}
    assert metadata == {
        "enable-oslogin": "FALSE",
        "block-project-ssh-keys": "TRUE",
        "enable-guest-attributes": "TRUE",
        "muster-cluster": "lab",
        "muster-role": "builder",
        "muster-bundle": wanted.archive,
        "startup-script": startup_script(),
    }


def test_a_failed_build_says_where_and_leaves_nothing(
    compute: Compute, wanted: Build, script: Script, left: Callable[[], list[str]]
):
    script.fails["builder"] = "E: no such package"
    with pytest.raises(CloudError) as caught:
        image.build(compute, wanted, print)
    message = str(caught.value)
    assert 'failed at "Install SLURM": E: no such package' in message
    assert message.endswith("[muster] Install SLURM\nfatal: E: no such package")
    assert left() == []
    script.fails.clear()
    assert image.build(compute, wanted, print).name in left()


def test_a_builder_that_says_nothing_is_given_up(
    compute: Compute,
    wanted: Build,
    script: Script,
    left: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(image, "BUILD_TIMEOUT_S", 0)
    script.silent.add("builder")
    with pytest.raises(CloudError, match="took more than 0 minutes; it stopped before its first"):
        image.build(compute, wanted, print)
    assert left() == []


def test_a_builder_that_vanishes_is_noticed(
    compute: Compute, wanted: Build, script: Script, left: Callable[[], list[str]]
):
    # It is gone before its first step ends.
    script.lasts = lambda _step: True

    def delete(line: str) -> None:
        # As Google does after its maximum run time.
        if line.endswith("Fetch the bundle"):
            compute.wait(compute.delete(f"{ZONE}/instances/lab-builder-01234567"), 10)

    with pytest.raises(CloudError, match='ended at "Fetch the bundle" without a report'):
        image.build(compute, wanted, delete)
    assert left() == []


def test_a_builder_that_stays_on_is_given_up(
    compute: Compute,
    wanted: Build,
    script: Script,
    left: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(image, "POWER_OFF_TIMEOUT_S", 0)
    script.stays_on = True
    with pytest.raises(CloudError, match="is done, but not off after 0 s"):
        image.build(compute, wanted, print)
    assert left() == []


@pytest.mark.parametrize("method", ["compute.instances.insert", "compute.images.insert"])
def test_what_google_refuses_is_said_and_nothing_is_left(
    compute: Compute,
    cloud: Server,
    wanted: Build,
    left: Callable[[], list[str]],
    method: str,
):
    error = OperationError("QUOTA_EXCEEDED", "Quota 'X' exceeded.", 403)
    cloud.do(lambda fake: fake.faults.add(method, operation_error=error))
    with pytest.raises(CloudError, match="could not be made: Quota 'X' exceeded") as caught:
        image.build(compute, wanted, print)
    assert caught.value.reason == "QUOTA_EXCEEDED"
    assert left() == []


def test_what_a_killed_build_left_is_swept_by_the_next(
    compute: Compute, wanted: Build, left: Callable[[], list[str]]
):
    # Killed twice: while a builder ran, and when its image was not whole yet.
    body = image.builder(wanted, "lab-builder-other")
    compute.wait(compute.post(f"{ZONE}/instances", body), 10)
    compute.wait(compute.post(f"{ZONE}/disks", {"name": "d", "sizeGb": "10"}), 10)
    half = {"name": "lab-half", "sourceDisk": f"{ZONE}/disks/d", "labels": body["labels"]}
    compute.wait(compute.post("global/images", half), 10)
    compute.wait(compute.delete(f"{ZONE}/disks/d"), 10)
    made = image.build(compute, wanted, print)
    assert left() == [made.name]


def test_interrupting_it_leaves_nothing(
    compute: Compute, wanted: Build, left: Callable[[], list[str]]
):
    def interrupt(line: str) -> None:
        if line.endswith("Install SLURM"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        image.build(compute, wanted, interrupt)
    assert left() == []
