"""The wait for a VM that configures itself."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from fake_guests import Script

from muster.gcp import first_boot, reports
from muster.gcp.api import CloudError, Compute
from muster_sandbox.fakecloud.server import Server

ZONE = "europe-west4-a"
ONE, TWO = "1" * 64, "2" * 64


@pytest.fixture
def boot(compute: Compute, net: str) -> Callable[..., None]:
    """Make the controller's VM with a bundle to apply."""

    def make(bundle: str) -> None:
        metadata = {
            "muster-role": "controller",
            "muster-bundle": f"gs://b/bundle-{bundle}.tar.gz",
            "enable-guest-attributes": "TRUE",
        }
        image = "projects/debian-cloud/global/images/family/debian-12"
        body = {
            "name": "lab-controller",
            "machineType": f"zones/{ZONE}/machineTypes/n1-standard-2",
            "disks": [{"boot": True, "initializeParams": {"sourceImage": image}}],
            "networkInterfaces": [{"subnetwork": net}],
            "metadata": {"items": [{"key": k, "value": v} for k, v in metadata.items()]},
        }
        compute.wait(compute.post(f"zones/{ZONE}/instances", body), 10)

    return make


def change_bundle(compute: Compute, bundle: str) -> None:
    path = f"zones/{ZONE}/instances/lab-controller"
    metadata = compute.get(path)["metadata"]
    items = [item for item in metadata["items"] if item["key"] != "muster-bundle"]
    items.append({"key": "muster-bundle", "value": f"gs://b/bundle-{bundle}.tar.gz"})
    body = {"fingerprint": metadata["fingerprint"], "items": items}
    compute.wait(compute.post(f"{path}/setMetadata", body), 10)


def wait(compute: Compute, bundle: str, *, timeout_s: float = 10) -> list[str]:
    said: list[str] = []
    first_boot.wait(compute, ZONE, "lab-controller", bundle, said.append, timeout_s=timeout_s)
    return said


def test_steps_are_shown_and_a_new_bundle_is_waited_for(
    compute: Compute, boot: Callable[..., None]
):
    boot(ONE)
    assert wait(compute, ONE)[-1] == "lab-controller: Start slurmctld"
    assert wait(compute, ONE) == ["lab-controller: Start slurmctld"], "it is done already"
    change_bundle(compute, TWO)
    assert wait(compute, TWO)


def test_another_bundles_report_is_none(compute: Compute, boot: Callable[..., None]):
    boot(ONE)
    wait(compute, ONE)
    with pytest.raises(CloudError, match="has not configured itself within 0 minutes") as caught:
        wait(compute, TWO, timeout_s=0.1)
    assert "it stopped before its first step" in str(caught.value)
    assert str(caught.value).endswith("[muster] Start slurmctld"), "the console's end is shown"


def test_a_failure_says_where_to_look(compute: Compute, boot: Callable[..., None], script: Script):
    script.fails["controller"] = "no space left"
    boot(ONE)
    with pytest.raises(CloudError) as caught:
        wait(compute, ONE)
    message = str(caught.value)
    assert 'could not configure itself at "Start slurmctld": no space left; see `journal' in message


def test_what_a_vm_says_does_not_control_the_terminal() -> None:
    """Root of a VM writes its guest attribute and its console."""
    report = {"bundle": ONE, "state": "failed", "step": "\x1b]0;title\x07", "message": "a\nb\x9b"}
    answers = {
        "vm/getGuestAttributes": {"queryValue": {"items": [{"value": json.dumps(report)}]}},
        "vm/serialPort": {"contents": "\x1b[32mone\x1b]52;c;cm0gLXJmIH4K\x07\r\ntwo\n"},
    }
    said = SimpleNamespace(get=lambda path, **_: answers[path])
    found = reports.read(cast("Compute", said), "vm")
    assert found == reports.Report(ONE, "failed", " ]0;title ", "a b ")
    lines = reports.console(cast("Compute", said), "vm").split("\n")
    assert lines == [" [32mone ]52;c;cm0gLXJmIH4K ", "two"]


def test_an_old_failure_may_be_overcome(
    compute: Compute,
    cloud: Server,
    boot: Callable[..., None],
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
):
    script.fails["controller"] = "Secret Manager is away"
    boot(ONE)
    with pytest.raises(CloudError):
        wait(compute, ONE)
    script.fails.clear()
    change_bundle(compute, TWO)
    wait(compute, TWO)

    script.fails["controller"] = "again"
    change_bundle(compute, ONE)
    with pytest.raises(CloudError, match="again"):
        wait(compute, ONE)
    monkeypatch.setattr(first_boot, "GRACE_S", 0)
    with pytest.raises(CloudError, match="again"):
        wait(compute, ONE)


@pytest.mark.parametrize("way", ["stop", "delete"])
def test_a_vm_that_is_off_is_not_waited_for(
    compute: Compute, boot: Callable[..., None], script: Script, way: str
):
    script.silent.add("controller")
    boot(ONE)
    path = f"zones/{ZONE}/instances/lab-controller"
    ask = compute.post if way == "stop" else compute.delete
    compute.wait(ask(f"{path}/stop" if way == "stop" else path), 10)
    said = "terminated" if way == "stop" else "gone"
    with pytest.raises(CloudError, match=f"lab-controller is {said}: start it"):
        wait(compute, ONE)
