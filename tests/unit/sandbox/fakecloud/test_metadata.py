"""The metadata server: machines are told apart by their addresses, here 127.0.0.x."""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import google.auth.compute_engine
import google.auth.transport.requests
import httpx
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fakecloud_calls import REGION, ZONE, instance
from google.auth import jwt
from google.auth.compute_engine import _metadata

from muster_sandbox.fakecloud.server import Server

BASE = "/compute/v1/projects/demo-project"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ACCOUNT = "123456789012-compute@developer.gserviceaccount.com"
Machine = Callable[..., httpx.Client]


@pytest.fixture
def machines(http: httpx.Client) -> httpx.Client:
    """Two instances, one at 127.0.0.2 with guest attributes and two at 127.0.0.3 without."""

    def made(path: str, body: dict[str, Any]) -> None:
        answer = http.post(f"{BASE}/{path}", json=body)
        assert answer.status_code == 200, answer.text

    made("global/networks", {"name": "lab", "autoCreateSubnetworks": False, "mtu": 8896})
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "127.0.0.0/24"}
    made(f"{REGION}/subnetworks", subnet)
    account = [{"email": "default", "scopes": [SCOPE]}]
    for number, name in ((2, "one"), (3, "two")):
        nic = {"subnetwork": f"{REGION}/subnetworks/lab", "networkIP": f"127.0.0.{number}"}
        enabled = "TRUE" if name == "one" else "FALSE"
        items = [
            {"key": "startup-script", "value": f"#!/bin/sh\necho {name}\n"},
            {"key": "enable-guest-attributes", "value": enabled},
        ]
        made(
            f"{ZONE}/instances",
            instance(
                name,
                networkInterfaces=[nic],
                metadata={"items": items},
                tags={"items": ["b", "a"]},
                serviceAccounts=account if name == "one" else [],
            ),
        )
    return http


@pytest.fixture
def on(cloud: Server, machines: httpx.Client) -> Iterator[Machine]:
    """A client on the machine with a number: its requests come from 127.0.0.<number>."""
    clients: list[httpx.Client] = []

    def client(number: str, **headers: str) -> httpx.Client:
        clients.append(
            httpx.Client(
                base_url=f"{cloud.metadata_url}/computeMetadata/v1/",
                transport=httpx.HTTPTransport(local_address=f"127.0.0.{number}"),
                headers=headers or {"Metadata-Flavor": "Google"},
                timeout=20,
            )
        )
        return clients[-1]

    yield client
    for opened in clients:
        opened.close()


def test_each_machine_gets_its_own(on: Machine):
    for number, name in (("2", "one"), ("3", "two")):
        machine = on(number)
        assert machine.get("instance/name").text == name
        script = machine.get("instance/attributes/startup-script")
        assert script.text == f"#!/bin/sh\necho {name}\n"
        assert script.headers["Metadata-Flavor"] == "Google"
        assert machine.get("instance/zone").text == ("projects/123456789012/zones/europe-west4-a")
        assert machine.get("instance/hostname").text == (
            f"{name}.europe-west4-a.c.demo-project.internal"
        )
        assert machine.get("project/project-id").text == "demo-project"
        assert machine.get("project/numeric-project-id").text == "123456789012"
        assert machine.get("instance/network-interfaces/0/ip").text == f"127.0.0.{number}"
    assert on("9").get("instance/name").status_code == 404


def test_the_header_is_required(on: Machine):
    assert on("2", **{"Accept": "*/*"}).get("instance/name").status_code == 403
    forwarded = {"Metadata-Flavor": "Google", "X-Forwarded-For": "10.0.0.1"}
    assert on("2", **forwarded).get("instance/name").status_code == 403


def test_directories_are_listed(on: Machine):
    machine = on("2")
    moved = machine.get("instance/attributes")
    assert (moved.status_code, moved.headers["location"]) == (
        301,
        "/computeMetadata/v1/instance/attributes/",
    )
    assert machine.get("instance/attributes/").text == "enable-guest-attributes\nstartup-script\n"
    assert machine.get("").text == "instance/\nproject/\n"
    assert machine.get("instance/disks/").text == "0/\n"
    for missing in ("nothing", "instance/attributes/none", "instance/disks/7", "instance/name/x"):
        assert machine.get(missing).status_code == 404


def test_all_at_once_is_json_with_camel_case(on: Machine):
    document = on("2").get("instance/?recursive=true").json()
    assert document["machineType"] == "projects/123456789012/machineTypes/n1-standard-2"
    assert document["attributes"]["enable-guest-attributes"] == "TRUE"
    assert document["tags"] == ["b", "a"]
    assert document["disks"][0]["deviceName"] == "persistent-disk-0"
    (nic,) = document["networkInterfaces"]
    assert (nic["ip"], nic["mtu"], nic["gateway"]) == ("127.0.0.2", 8896, "127.0.0.1")
    assert document["serviceAccounts"]["default"] == {
        "aliases": ["default"],
        "email": ACCOUNT,
        "scopes": [SCOPE],
    }
    assert document["image"].startswith("projects/debian-cloud/global/images/debian-12")
    assert isinstance(document["id"], int)
    text = on("2").get("instance/attributes/?recursive=true&alt=text").text
    assert text.startswith("enable-guest-attributes TRUE\nstartup-script #!/bin/sh\n")
    assert on("2").get("instance/name?alt=json").json() == "one"


def test_a_wait_ends_with_the_change(on: Machine, machines: httpx.Client, cloud: Server):
    machine = on("2")
    url = "instance/attributes/bundle?wait_for_change=true"
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(machine.get(url)))
    thread.start()
    begun = time.monotonic()
    while not cloud.do(lambda fake: any(fake.watchers.values())):
        assert time.monotonic() - begun < 10
    fingerprint = machines.get(f"{BASE}/{ZONE}/instances/one").json()["metadata"]["fingerprint"]
    body = {"fingerprint": fingerprint, "items": [{"key": "bundle", "value": "sha256:1"}]}
    machines.post(f"{BASE}/{ZONE}/instances/one/setMetadata", json=body)
    thread.join(10)
    assert answers[0].text == "sha256:1"


def test_a_change_between_two_waits_is_not_missed(on: Machine):
    machine = on("2")
    now = machine.get("instance/attributes/startup-script")
    known = now.headers["ETag"]
    waited = {"wait_for_change": "true", "timeout_sec": "0.2"}
    same = machine.get("instance/attributes/startup-script", params={**waited, "last_etag": known})
    assert (same.status_code, same.headers["ETag"]) == (200, known)
    begun = time.monotonic()
    other = {**waited, "timeout_sec": "60", "last_etag": "0"}
    assert machine.get("instance/attributes/startup-script", params=other).text == now.text
    assert time.monotonic() - begun < 10


def test_a_machine_reports_its_guest_attributes(on: Machine, machines: httpx.Client):
    machine = on("2")
    assert machine.put("instance/guest-attributes/muster/state", content="ready").is_success
    assert machine.get("instance/guest-attributes/muster/state").text == "ready"
    assert machine.get("instance/guest-attributes/").text == "muster/\n"
    url = f"{BASE}/{ZONE}/instances/one/getGuestAttributes"
    items = machines.get(url, params={"queryPath": "muster/"}).json()["queryValue"]["items"]
    assert items == [{"namespace": "muster", "key": "state", "value": "ready"}]
    assert machine.delete("instance/guest-attributes/muster/state").is_success
    assert machine.get("instance/guest-attributes/muster/state").status_code == 404
    assert machine.delete("instance/guest-attributes/muster/state").status_code == 404
    assert machine.put("instance/guest-attributes/alone", content="x").status_code == 400
    assert machine.put("instance/attributes/own", content="x").status_code == 405


def test_guest_attributes_are_off_unless_enabled(on: Machine):
    machine = on("3")
    assert machine.put("instance/guest-attributes/muster/state", content="x").status_code == 403
    assert machine.get("instance/guest-attributes/muster/state").status_code == 403


def test_a_machine_without_account_has_no_token(on: Machine):
    assert on("3").get("instance/service-accounts/default/token").status_code == 404
    assert on("3").get("instance/service-accounts/").text == ""


def test_a_token_opens_the_cloud(on: Machine, cloud: Server):
    machine = on("2")
    assert machine.get("instance/service-accounts/default/email").text == ACCOUNT
    assert machine.get("instance/service-accounts/default/scopes").text == f"{SCOPE}\n"
    for name in ("default", ACCOUNT):
        token = machine.get(f"instance/service-accounts/{name}/token").json()
        assert set(token) == {"access_token", "expires_in", "token_type"}
        assert 0 < token["expires_in"] <= 3600
        assert token["access_token"]
    beyond = machine.get("instance/service-accounts/default/token?scopes=https://other")
    assert beyond.status_code == 403


def test_a_token_has_the_rights_of_its_account_alone(on: Machine, http: httpx.Client):
    token = on("2").get("instance/service-accounts/default/token").json()["access_token"]
    own = {"Authorization": f"Bearer {token}"}
    path = f"{BASE}/{ZONE}/instances"
    refused = http.get(path, headers=own)
    assert refused.status_code == 403
    assert "compute.instances.list" in refused.json()["error"]["message"]
    project = "/cloudresourcemanager/v1/projects/demo-project"
    policy = http.post(f"{project}:getIamPolicy", json={}).json()
    policy["bindings"].append(
        {"role": "roles/compute.viewer", "members": [f"serviceAccount:{ACCOUNT}"]}
    )
    assert http.post(f"{project}:setIamPolicy", json={"policy": policy}).status_code == 200
    assert len(http.get(path, headers=own).json()["items"]) == 2
    assert http.delete(f"{path}/one", headers=own).status_code == 403


def test_an_identity_is_signed_and_names_the_machine(on: Machine, cloud: Server):
    machine = on("2")
    url = "instance/service-accounts/default/identity"
    assert machine.get(url).status_code == 400
    token = machine.get(url, params={"audience": "https://muster", "format": "full"}).text
    (key,) = httpx.get(f"{cloud.url}/oauth2/v3/certs", trust_env=False).json()["keys"]
    n, e = (int.from_bytes(base64.urlsafe_b64decode(key[part] + "==")) for part in "ne")
    pem = rsa.RSAPublicNumbers(e, n).public_key().public_bytes(Encoding.PEM, PublicFormat.PKCS1)
    claims = jwt.decode(token, certs=pem, audience="https://muster")
    assert (claims["aud"], claims["email"]) == ("https://muster", ACCOUNT)
    assert claims["google"]["compute_engine"]["instance_name"] == "one"
    assert "google" not in jwt.decode(machine.get(url, params={"audience": "a"}).text, verify=False)


def test_a_machine_hears_that_it_is_preempted(
    on: Machine, cloud: Server, machines: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    """During its shutdown, with a backend whose machines take time."""
    ending: list[Callable[[str], None]] = []

    def slow_stop(_instance: Any, done: Callable[[str], None], _seconds: int) -> None:
        ending.append(done)

    monkeypatch.setattr(cloud.cloud.backend, "stop", slow_stop)
    nic = {"subnetwork": f"{REGION}/subnetworks/lab", "networkIP": "127.0.0.4"}
    body = instance("spot", networkInterfaces=[nic], scheduling={"provisioningModel": "SPOT"})
    machines.post(f"{BASE}/{ZONE}/instances", json=body)
    machine = on("4")
    assert machine.get("instance/preempted").text == "FALSE"
    machines.post(f"{BASE}/{ZONE}/instances/spot/simulateMaintenanceEvent")
    assert machine.get("instance/preempted").text == "TRUE"
    cloud.do(lambda _: ending[0](""))
    vm = machines.get(f"{BASE}/{ZONE}/instances/spot").json()
    assert vm["status"] == "TERMINATED"
    machines.post(f"{BASE}/{ZONE}/instances/spot/start")
    assert machine.get("instance/preempted").text == "FALSE"


def test_a_stopped_machine_is_unknown(on: Machine, machines: httpx.Client):
    machines.post(f"{BASE}/{ZONE}/instances/two/stop")
    assert on("3").get("instance/name").status_code == 404


def test_googles_own_client_finds_its_way(
    on: Machine, cloud: Server, monkeypatch: pytest.MonkeyPatch
):
    """google-auth asks for the account, its scopes and a token."""
    # What GCE_METADATA_HOST sets when the module is imported.
    host = f"127.0.0.1:{cloud.metadata_port}"
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", host)
    session = requests.Session()
    session.mount("http://", _From("127.0.0.2"))
    request = google.auth.transport.requests.Request(session)
    assert _metadata.get_project_id(request) == "demo-project"
    credentials = google.auth.compute_engine.Credentials()
    credentials.refresh(request)
    assert credentials.token
    assert credentials.service_account_email == ACCOUNT
    assert credentials.valid
    session.close()


class _From(requests.adapters.HTTPAdapter):
    """Sends requests from an address of this machine's."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, source_address=(self.address, 0), **options)


def test_who_waits_is_answered_when_fakecloud_ends(
    on: Machine, machines: httpx.Client, cloud: Server
):
    cloud.do(lambda fake: fake.settings.latency_seconds.update({"*.networks.insert": 600}))
    body = {"name": "slow", "autoCreateSubnetworks": False}
    operation = machines.post(f"{BASE}/global/networks", json=body).json()
    machine = on("2")
    answers: list[httpx.Response] = []
    waits = [
        lambda: machine.get("instance/attributes/?wait_for_change=true"),
        lambda: httpx.post(
            f"{cloud.url}{BASE}/global/operations/{operation['name']}/wait",
            headers={"Authorization": "Bearer owner"},
            trust_env=False,
            timeout=20,
        ),
    ]
    threads = [threading.Thread(target=lambda wait=wait: answers.append(wait())) for wait in waits]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    while not cloud.do(lambda fake: any(fake.watchers.values()) and any(fake.waiting.values())):
        assert time.monotonic() - begun < 10
    cloud.do(lambda fake: fake.end_waits())
    for thread in threads:
        thread.join(10)
    assert [answer.status_code for answer in answers] == [200, 200]
