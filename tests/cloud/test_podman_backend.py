"""fakecloud's machines that boot: containers with systemd and a metadata server each."""

import subprocess
from collections.abc import Iterator

import computekit
import pytest
from computekit import DEBIAN, PROJECT, ZONE, Compute, in_network
from waiting import until

from muster_sandbox.containers.podman import podman
from muster_sandbox.fakecloud.backends.machine import LABEL
from muster_sandbox.fakecloud.machines import with_machines

pytestmark = pytest.mark.proof(
    "boots six machines; tests/cloud/cloudcluster boots a cluster of them in `make test`"
)

NAME = "muster-cloud-backend"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"

REPORT = """#!/bin/sh
set -e
metadata() {
  python3 -c 'import sys, urllib.request as u
r = u.Request("http://metadata.google.internal/computeMetadata/v1/" + sys.argv[1],
  headers={"Metadata-Flavor": "Google"}, method=sys.argv[2],
  data=sys.argv[3].encode() if sys.argv[3:] else None)
print(u.urlopen(r).read().decode())' "$@"
}
name=$(metadata instance/name GET)
echo "startup-script of $name was here"
echo "$name" >>/root/boots
metadata instance/guest-attributes/test/boots PUT "$(tr '\\n' ' ' </root/boots)"
"""


def instance(name: str, image: str, **more: object) -> dict:
    return computekit.instance(name, image, REPORT, **more)


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compute]:
    folder = tmp_path_factory.mktemp("cloud")
    with with_machines(NAME, folder) as server, in_network(server, "10.214.48.0/24") as compute:
        yield compute
    assert podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}={NAME}") == ""
    assert podman("network", "ls", "--quiet", "--filter", f"label={LABEL}={NAME}") == ""
    assert NAME not in podman("images")
    assert str(folder) not in subprocess.check_output(["losetup", "--list"], text=True)


def test_machine_boots_and_runs_its_startup_script(compute: Compute) -> None:
    compute.do("POST", f"{ZONE}/instances", instance("one", DEBIAN))
    until(lambda: compute.attribute("one", "test/boots"), "one has run its startup-script", 90)
    assert compute.attribute("one", "test/boots") == "one "
    compute.wait_for_console("one", "startup-script of one was here")


def test_machines_find_each_other_by_name(compute: Compute) -> None:
    compute.do("POST", f"{ZONE}/instances", instance("two", DEBIAN))
    until(lambda: compute.attribute("two", "test/boots"), "two has run its startup-script", 90)
    address = compute.get(f"{ZONE}/instances/two")["networkInterfaces"][0]["networkIP"]
    assert address in in_machine(compute, "one", "getent", "hosts", "two")
    assert in_machine(compute, "two", "hostname") == "two"


ASK = """
import json, os, urllib.request as u
def get(url, headers):
    with u.urlopen(u.Request(url, headers=headers)) as answer:
        return json.load(answer)
base = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/"
token = get(base + "token", {"Metadata-Flavor": "Google"})["access_token"]
compute = os.environ["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"]
found = get(compute + "projects/PROJECT/zones/europe-west4-a/instances",
    {"Authorization": "Bearer " + token})
print(*sorted(item["name"] for item in found["items"]))
"""


def test_services_of_a_machine_reach_the_apis_as_its_account(compute: Compute) -> None:
    account = compute.account("lister", "roles/compute.viewer")
    body = instance("asking", DEBIAN, serviceAccounts=[{"email": account, "scopes": [SCOPE]}])
    compute.do("POST", f"{ZONE}/instances", body)
    until(lambda: compute.attribute("asking", "test/boots"), "asking has booted", 90)
    service = ["systemd-run", "--quiet", "--pipe", "python3", "-c", ASK.replace("PROJECT", PROJECT)]
    assert in_machine(compute, "asking", *service).split() == ["asking", "one", "two"]
    compute.do("DELETE", f"{ZONE}/instances/asking")


def test_this_machine_keeps_its_hardware_address_when_machines_come_and_go(
    compute: Compute,
) -> None:
    # With another one machines couldn't reach it before their next ARP request.
    for name in ("one", "two"):
        known = [
            line.split() for line in in_machine(compute, name, "cat", "/proc/net/arp").split("\n")
        ]
        assert [row[3] for row in known if row[0] == "10.214.48.1"] == ["02:4d:0a:d6:30:01"]


def in_machine(compute: Compute, name: str, *command: str) -> str:
    number = compute.get(f"{ZONE}/instances/{name}")["id"]
    return podman("exec", f"{NAME}-{number}", *command)


def test_machine_that_powers_itself_off_is_terminated_and_starts_again(compute: Compute) -> None:
    in_machine(compute, "one", "systemctl", "poweroff")
    status = f"{ZONE}/instances/one"
    until(lambda: compute.get(status)["status"] == "TERMINATED", "one is off", 90)
    compute.do("POST", f"{ZONE}/instances/one/start")
    until(lambda: compute.attribute("one", "test/boots") == "one one ", "one has booted again", 90)


def test_image_of_a_disk_boots_again_under_another_name(compute: Compute) -> None:
    compute.do("POST", f"{ZONE}/instances/one/stop")
    compute.do("POST", "global/images", {"name": "baked", "sourceDisk": f"{ZONE}/disks/one"})
    compute.do("DELETE", f"{ZONE}/instances/one")
    compute.do("POST", f"{ZONE}/instances", instance("three", "global/images/baked"))
    until(lambda: compute.attribute("three", "test/boots"), "three has run its startup-script", 90)
    assert compute.attribute("three", "test/boots") == "one one three "


def test_what_a_machine_writes_at_its_end_is_on_the_disk_that_stays(compute: Compute) -> None:
    compute.do("POST", f"{ZONE}/disks", {"name": "state", "sizeGb": "10"})
    disk = {"source": f"{ZONE}/disks/state", "deviceName": "state", "autoDelete": False}
    device = "/dev/disk/by-id/google-state"
    for number, name in enumerate(["four", "five"]):
        body = instance(name, DEBIAN)
        body["disks"].append(disk)
        compute.do("POST", f"{ZONE}/instances", body)
        until(lambda n=name: compute.attribute(n, "test/boots"), f"{name} has booted", 90)
        if number == 0:
            in_machine(compute, name, "mkfs.ext4", "-q", device)
        in_machine(compute, name, "mount", device, "/mnt")
        if number == 0:
            # Like slurmctld, which writes its state at its end.
            daemon = [
                *("systemd-run", "--quiet", "--property=RequiresMountsFor=/mnt"),
                f"--property=ExecStop=sh -c 'echo {name} >>/mnt/seen'",
            ]
            in_machine(compute, name, *daemon, "sleep", "infinity")
            compute.do("DELETE", f"{ZONE}/instances/{name}")
    assert in_machine(compute, "five", "cat", "/mnt/seen").split() == ["four"]
    in_machine(compute, "five", "umount", "/mnt")


def test_deleted_machine_leaves_no_container(compute: Compute) -> None:
    number = compute.get(f"{ZONE}/instances/two")["id"]
    compute.do("DELETE", f"{ZONE}/instances/two")
    assert f"{NAME}-{number}" not in podman("ps", "--all", "--format", "{{.Names}}")


def test_work_that_fails_unexpectedly_ends_its_operation(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("muster_sandbox.fakecloud.backends.machine.create", broken)
    asked = compute.http.post(f"{ZONE}/instances", json=instance("six", DEBIAN)).json()
    path = asked["selfLink"].partition(f"/{PROJECT}/")[2]
    until(lambda: compute.get(path)["status"] == "DONE", "the operation has ended", 30)
    assert "a bug" in compute.get(path)["error"]["errors"][0]["message"]
    assert compute.http.get(f"{ZONE}/instances/six").status_code == 404
