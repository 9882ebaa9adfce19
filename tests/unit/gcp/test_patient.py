"""Calls right after their caller got the right: at Google it is in force a little later."""

import time
from collections.abc import Callable

import pytest
import requests
from test_image import account

from muster.gcp import first_boot, image, patient, sweep
from muster.gcp.api import CloudError, Compute
from muster.gcp.image import Build
from muster.gcp.patient import PatientCompute
from muster_sandbox.fakecloud import Cloud, identity, policies_in_force
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.server import Server

ROLES = ("compute.admin", "iam.serviceAccountUser")
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)

Grant = Callable[[], None]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient, "AGAIN_S", 0.05)
    monkeypatch.setattr(patient, "GRANT_S", 20.0)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def newcomer(cloud: Server, compute: Compute, said: list[str]) -> PatientCompute:
    """A client of an account without any right."""
    email = account(cloud, "newcomer")
    session = requests.Session()
    session.trust_env = False
    token = cloud.do(lambda fake: identity.issue(fake, email, SCOPES))
    session.headers["Authorization"] = f"Bearer {token}"

    def progress(line: str) -> None:
        said.append(line)
        if line.startswith("Google refuses"):
            name = f"projects/{compute.project}"
            cloud.do(lambda fake: policies_in_force.forget(fake, name))

    return PatientCompute(compute.project, progress, session)


@pytest.fixture
def grant(cloud: Server, compute: Compute) -> Grant:
    """Give the newcomer all rights, which are in force when it has said that it waits."""

    def late(fake: Cloud) -> None:
        fake.settings.grant_seconds = 3600

    def call(verb: str, body: dict) -> dict:
        url = f"{cloud.url}/cloudresourcemanager/v1/projects/{compute.project}:{verb}"
        answer = compute.service.session.post(url, json=body, timeout=10)
        assert answer.ok, answer.text
        return dict(answer.json())

    def grant() -> None:
        cloud.do(late)
        policy = call("getIamPolicy", {})
        member = f"serviceAccount:newcomer@{compute.project}.iam.gserviceaccount.com"
        new = [{"role": f"roles/{role}", "members": [member]} for role in ROLES]
        bindings = [*policy.get("bindings", []), *new]
        call("setIamPolicy", {"policy": {**policy, "bindings": bindings}})

    return grant


@pytest.fixture
def build(net: str, cloud: Server, compute: Compute) -> Build:
    return Build(
        project=compute.project,
        cluster="lab",
        zone="europe-west4-a",
        os="debian-12",
        digest="0" * 64,
        archive=f"gs://b/image-{'0' * 64}.tar.gz",
        machine_type="n1-standard-2",
        subnetwork=net,
        account=account(cloud, "lab-builder"),
    )


def test_an_image_is_built_with_a_right_that_comes_late(
    newcomer: PatientCompute, grant: Grant, build: Build, said: list[str]
) -> None:
    grant()
    assert image.build(newcomer, build, said.append).name.startswith("lab-")
    waits = [line for line in said if "in force a little later" in line]
    assert len(waits) == 1
    assert said[0].startswith("Google refuses a call (Required 'compute.instances.list' permission")


def test_a_sweep_waits(
    newcomer: PatientCompute, grant: Grant, compute: Compute, said: list[str]
) -> None:
    disk = {"name": "lab-lost", "sizeGb": "10", "labels": {"muster-cluster": "lab"}}
    compute.wait(compute.post("zones/europe-west4-a/disks", disk), 10)
    grant()
    sweep.everything(newcomer, "lab", said.append)
    assert said[-1] == "deleting the disk lab-lost"
    assert compute.everywhere("disks") == []


def test_a_first_boot_waits(
    newcomer: PatientCompute,
    grant: Grant,
    compute: Compute,
    net: str,
    said: list[str],
) -> None:
    digest = "1" * 64
    items = {"muster-role": "controller", "muster-bundle": f"gs://b/bundle-{digest}.tar.gz"}
    items["enable-guest-attributes"] = "TRUE"
    source = "projects/debian-cloud/global/images/family/debian-12"
    body = {
        "name": "lab-controller",
        "machineType": "zones/europe-west4-a/machineTypes/n1-standard-2",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": source}}],
        "networkInterfaces": [{"subnetwork": net}],
        "metadata": {"items": [{"key": key, "value": text} for key, text in items.items()]},
    }
    compute.wait(compute.post("zones/europe-west4-a/instances", body), 10)
    grant()
    first_boot.wait(newcomer, "europe-west4-a", "lab-controller", digest, said.append)
    assert said[0].startswith("Google refuses a call (Required 'compute.instances.get")


def test_who_lacks_the_right_waits_once(
    newcomer: PatientCompute, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient, "GRANT_S", 0.5)
    begin = time.monotonic()
    with pytest.raises(CloudError) as refused:
        newcomer.get("zones/europe-west4-a/instances")
    assert 0.3 < time.monotonic() - begin < 3
    assert refused.value.status == 403
    assert str(refused.value).startswith("Required 'compute.instances.list' permission")
    assert "if not, ask for the roles that docs/cloud.md lists" in str(refused.value)
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(CloudError):
            newcomer.by(begin + 60).get("zones/europe-west4-a/instances")
    assert time.monotonic() - begin < 0.4
    assert len(said) == 1


def test_an_earlier_end_ends_the_wait(newcomer: PatientCompute) -> None:
    begin = time.monotonic()
    with pytest.raises(CloudError):
        newcomer.by(begin + 0.5).get("zones/europe-west4-a/instances")
    assert time.monotonic() - begin < 3


def test_another_403_is_final(compute: Compute, cloud: Server, said: list[str]) -> None:
    quota = ApiError(403, "quotaExceeded", "Quota 'CPUS' exceeded.")
    cloud.do(lambda fake: fake.faults.add("compute.zones.list", error=quota))
    patiently = PatientCompute(compute.project, said.append, compute.service.session)
    with pytest.raises(CloudError, match="Quota 'CPUS' exceeded"):
        patiently.get("zones")
    assert said == []
