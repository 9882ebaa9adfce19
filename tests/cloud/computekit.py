"""Compute Engine as a client of fakecloud sees it."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from waiting import until

from muster_sandbox.fakecloud.cloud import Settings
from muster_sandbox.fakecloud.server import Server

PROJECT = Settings().project
ZONE = "zones/europe-west4-a"
REGION = "regions/europe-west4"
DEBIAN = "projects/debian-cloud/global/images/family/debian-12"


class Compute:
    """Compute Engine as a client sees it: calls that wait for their operations."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(
            base_url=f"{url}/compute/v1/projects/{PROJECT}/",
            headers={"Authorization": "Bearer owner"},
            trust_env=False,
            timeout=60,
        )

    def do(self, verb: str, path: str, body: dict | None = None) -> dict:
        answer = self.http.request(verb, path, json=body)
        assert answer.status_code == 200, answer.text
        operation = answer.json()
        until(lambda: self._done(operation), f"{verb} {path}", 200)
        return operation

    def _done(self, operation: dict) -> bool:
        answer = self.http.get(operation["selfLink"].partition(f"/{PROJECT}/")[2]).json()
        assert "error" not in answer, answer
        return answer["status"] == "DONE"

    def get(self, path: str) -> dict:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict) -> dict:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def account(self, name: str, role: str) -> str:
        """A service account with a role in the project."""
        root = str(self.http.base_url).partition("/compute/")[0]
        accounts = f"{root}/iam/v1/projects/{PROJECT}/serviceAccounts"
        email = str(self.post(accounts, {"accountId": name})["email"])
        project = f"{root}/cloudresourcemanager/v1/projects/{PROJECT}"
        policy = self.post(f"{project}:getIamPolicy", {})
        policy["bindings"].append({"role": role, "members": [f"serviceAccount:{email}"]})
        self.post(f"{project}:setIamPolicy", {"policy": policy})
        return email

    def wait_for_console(self, name: str, text: str) -> None:
        """Return when a machine's console shows `text`, soon after the machine has written it."""
        place = f"{ZONE}/instances/{name}/serialPort"
        until(lambda: text in self.get(place)["contents"], f"{name} shows {text!r}", 30)

    def attribute(self, name: str, path: str) -> str:
        answer = self.http.get(
            f"{ZONE}/instances/{name}/getGuestAttributes", params={"queryPath": path}
        )
        return answer.json()["queryValue"]["items"][0]["value"] if answer.status_code == 200 else ""


def instance(name: str, image: str, script: str, **more: object) -> dict:
    """The body of an insert: a machine with a startup-script that may set guest attributes."""
    return {
        "name": name,
        "machineType": f"{ZONE}/machineTypes/n1-standard-2",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image}}],
        "networkInterfaces": [{"subnetwork": f"{REGION}/subnetworks/lab"}],
        "metadata": {
            "items": [
                {"key": "startup-script", "value": script},
                {"key": "enable-guest-attributes", "value": "TRUE"},
            ]
        },
        **more,
    }


@contextmanager
def in_network(server: Server, subnet: str) -> Iterator[Compute]:
    """Run a fakecloud with a network `lab` for machines."""
    server.start()
    try:
        compute = Compute(server.url)
        network = {"name": "lab", "autoCreateSubnetworks": False}
        compute.do("POST", "global/networks", network)
        body = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": subnet}
        compute.do("POST", f"{REGION}/subnetworks", body)
        yield compute
        compute.http.close()
    finally:
        server.stop()
    assert server.cloud.failures == []
