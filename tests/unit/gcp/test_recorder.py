"""The recorder between Muster and a cloud: all arrives, all is written down, no secret is."""

import io
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from broken_servers import silent_server

from muster.gcp import recorder as module
from muster.gcp.api import CloudError, Compute
from muster.gcp.recorder import PRODUCTS, Recorder, recording, upstreams
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.server import Server

PROJECT = "demo-project"
PLANTED = "planted-7f3a91c2d4"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIFzWZ8Jb1Jm0cWb2Yk6pYxC4o0m1o8rJqf0nXq0Zb1aQ"
OWNER = {"Authorization": "Bearer owner"}


class Recorded:
    """A recorder that serves; `lines` are what it has written."""

    def __init__(self, recorder: Recorder, file: io.StringIO, variables: dict[str, str]) -> None:
        self.recorder, self.file, self.variables = recorder, file, variables

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.getvalue().splitlines()]

    def url(self, product: str) -> str:
        return self.variables[f"GOOGLE_{product}_CUSTOM_ENDPOINT"]


@pytest.fixture
def recorded(
    cloud: Server, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recorded]:
    """Between `compute` and its cloud."""
    file = io.StringIO()
    recorder = Recorder(file)
    with recording(recorder, environment(cloud.url, PROJECT)) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Recorded(recorder, file, variables)


def test_a_conversation_is_written_in_its_order(recorded: Recorded, compute: Compute) -> None:
    recorded.recorder.begin(muster="muster 1", command="pulumi up")
    body = {"name": "lab", "autoCreateSubnetworks": False}
    compute.wait(compute.post("global/networks", body, requestId="0-1"), 10)
    assert compute.get("global/networks/lab")["name"] == "lab"
    with pytest.raises(CloudError) as refused:
        compute.get("global/networks/none")
    assert refused.value.status == 404
    head, first, *polls, last, error = recorded.lines
    assert (head["recording"], head["muster"], head["command"]) == (1, "muster 1", "pulumi up")
    assert (first["number"], first["verb"], first["status"]) == (1, "POST", 200)
    assert first["url"].endswith(f"/compute/beta/projects/{PROJECT}/global/networks")
    assert first["query"] == {"requestId": "0-1"}
    assert first["body"] == body
    assert first["answer"]["kind"] == "compute#operation"
    assert all("/operations/" in poll["url"] for poll in polls)
    assert last["body"] is None and last["answer"]["name"] == "lab"
    assert error["status"] == 404 and error["answer"]["error"]["code"] == 404
    assert [line["number"] for line in recorded.lines[1:]] == list(range(1, len(polls) + 4))


def test_no_planted_secret_is_in_the_file(recorded: Recorded, compute: Compute) -> None:
    token = f"token-{PLANTED}"
    url = recorded.url("COMPUTE") + f"projects/{PROJECT}/global/networks"
    refused = requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=10)
    assert refused.status_code == 401
    network = {"name": "lab", "autoCreateSubnetworks": False, "description": f"it is {token}"}
    compute.wait(compute.post("global/networks", network, key=PLANTED), 10)
    items = [{"key": "ssh-keys", "value": f"ada:ssh-ed25519 {KEY}"}, {"key": "x", "value": PLANTED}]
    source = "projects/debian-cloud/global/images/family/debian-12"
    properties = {
        "machineType": "n1-standard-2",
        "disks": [{"boot": True, "initializeParams": {"sourceImage": source}}],
        "networkInterfaces": [{"network": "global/networks/lab"}],
        "metadata": {"items": items},
    }
    template = {"name": "lab", "properties": properties}
    compute.wait(compute.post("global/instanceTemplates", template), 10)
    read = compute.get("global/instanceTemplates/lab")["properties"]["metadata"]["items"]
    assert read == items
    secrets = recorded.url("SECRET_MANAGER") + f"projects/{PROJECT}/secrets"
    made = {"replication": {"automatic": {}}}
    session = requests.Session()
    session.headers.update(OWNER)
    assert session.post(secrets, params={"secretId": "lab"}, json=made, timeout=10).ok
    data = b64encode(PLANTED.encode()).decode()
    version = {"payload": {"data": data}}
    assert session.post(f"{secrets}/lab:addVersion", json=version, timeout=10).ok
    read = session.get(f"{secrets}/lab/versions/latest:access", timeout=10).json()
    assert read["payload"]["data"] == data
    bucket = recorded.url("STORAGE") + "b"
    assert session.post(bucket, params={"project": PROJECT}, json={"name": "lab-b"}, timeout=10).ok
    root = recorded.url("STORAGE").partition("/storage/")[0]
    # Without a length, as Google's provider sends it.
    sent = session.post(
        f"{root}/upload/storage/v1/b/lab-b/o",
        params={"uploadType": "media", "name": "bundle"},
        data=iter([b"planted-", b"7f3a91c2d4"]),
        timeout=10,
    )
    assert sent.ok and sent.json()["size"] == str(len(PLANTED))
    got = session.get(f"{bucket}/lab-b/o/bundle", params={"alt": "media"}, timeout=10)
    assert got.content == PLANTED.encode()
    text = recorded.file.getvalue()
    for secret in (PLANTED, data, KEY, "Bearer"):
        assert secret not in text
    # What it is without them.
    assert text.count("secrets/lab:addVersion") == 1
    assert '"key": "ssh-keys"' in text
    assert f"({len(PLANTED)} bytes" in text


def test_an_upload_in_parts_stays_with_the_recorder(recorded: Recorded) -> None:
    session = requests.Session()
    session.headers.update(OWNER)
    bucket = recorded.url("STORAGE") + "b"
    assert session.post(bucket, params={"project": PROJECT}, json={"name": "lab-b"}, timeout=10).ok
    root = recorded.url("STORAGE").partition("/storage/")[0]
    begun = session.post(
        f"{root}/upload/storage/v1/b/lab-b/o",
        params={"uploadType": "resumable", "name": "bundle"},
        json={},
        timeout=10,
    )
    where = begun.headers["Location"]
    assert where.startswith(root)
    assert session.put(where, data=b"abc", timeout=10).json()["size"] == "3"
    assert recorded.lines[-1]["query"]["upload_id"] == "(redacted)"


def test_a_path_of_no_api_is_said(recorded: Recorded) -> None:
    root = recorded.url("COMPUTE").partition("/compute/")[0]
    answer = requests.get(f"{root}/filestore/v1/x", timeout=10)
    assert answer.status_code == 404
    assert "no API of Google has /filestore/v1/x" in answer.json()["error"]["message"]
    assert recorded.lines[-1]["status"] == 404


def test_a_cloud_that_does_not_answer_is_written_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", (0.2, 0.2))
    file = io.StringIO()
    with silent_server() as address:
        there = {"GOOGLE_COMPUTE_CUSTOM_ENDPOINT": f"http://{address}/compute/beta/"}
        with recording(Recorder(file), there) as variables:
            url = variables["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"] + "projects/p"
            answer = requests.get(url, timeout=10)
    assert answer.status_code == 502
    line = json.loads(file.getvalue())
    assert line["url"] == f"http://{address}/compute/beta/projects/p"
    assert "no answer" in line["answer"]["error"]["message"]


def test_without_other_settings_all_goes_to_google_by_tls() -> None:
    assert upstreams({}) == PRODUCTS
    assert all(address.startswith("https://") for address in PRODUCTS.values())
    with recording(Recorder(io.StringIO()), {"NO_PROXY": "10.0.0.0/8"}) as variables:
        assert variables["NO_PROXY"] == "10.0.0.0/8,127.0.0.1"
        assert variables.keys() - {"NO_PROXY", "no_proxy"} == {
            name for name in environment("x", "y") if name.endswith("CUSTOM_ENDPOINT")
        }
        # Each as fakecloud's are, with which Google's provider has been run.
        for name, url in environment("http://x", "y").items():
            if name.endswith("CUSTOM_ENDPOINT"):
                assert variables[name].split("/")[-2] == url.split("/")[-2]


def test_each_address_stands_for_google_s() -> None:
    bases = {product.lower(): module._parts(url)[0] for product, url in PRODUCTS.items()}
    for path, url in {
        "/compute/beta/projects/p": "https://compute.googleapis.com/compute/beta/projects/p",
        "/iam_beta/v1/projects/p?x=1": "https://iam.googleapis.com/v1/projects/p?x=1",
        "/upload/storage/v1/b/b/o?name=a%2Fb": (
            "https://storage.googleapis.com/upload/storage/v1/b/b/o?name=a%2Fb"
        ),
        "/storage/v1/b/b": "https://storage.googleapis.com/storage/v1/b/b",
        "/other/v1": None,
        "//evil.example/v1": None,
    }.items():
        assert module._target(path, bases) == url
