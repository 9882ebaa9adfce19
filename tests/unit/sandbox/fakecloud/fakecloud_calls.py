"""Calls to a cloud in the test's thread, and the bodies that tests send."""

import json
from typing import Any
from urllib.parse import urlencode

from muster_sandbox.fakecloud import Cloud, checking, handle, routes
from muster_sandbox.fakecloud.http import Deferred, Request

ZONE = "zones/europe-west4-a"
REGION = "regions/europe-west4"


LOCAL_SSD = {
    "type": "SCRATCH",
    "initializeParams": {
        "diskType": f"projects/demo-project/{ZONE}/diskTypes/local-ssd",
        "diskSizeGb": "375",
    },
    "interface": "NVME",
    "autoDelete": True,
}


def instance(name: str, **members: Any) -> dict[str, Any]:
    """The body of an insert."""
    return {
        "name": name,
        "machineType": f"{ZONE}/machineTypes/n1-standard-2",
        "networkInterfaces": [{"subnetwork": f"{REGION}/subnetworks/lab"}],
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": "projects/debian-cloud/global/images/family/debian-12"
                },
            }
        ],
        **members,
    }


def conforms(verb: str, version: str, path: str, answer: Any) -> None:
    """An answer must be what the description says, as a body must."""
    method = routes.find(verb, f"compute/{version}/projects/p/{path}".rstrip("/")).method
    assert method.response
    checking.check_value(method.description, method.response, answer)


class Caller:
    """Calls a cloud of this thread as HTTP would: `.get(path)`, `.post(path, body, **query)`.

    Paths continue after projects/P/; the result is JSON, or the status if it isn't 200.
    """

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        version: str = "v1",
        project: str = "demo-project",
        **query: Any,
    ) -> tuple[int, Any]:
        reply = handle(
            self.cloud,
            Request(
                verb,
                f"/compute/{version}/projects/{project}/{path}".rstrip("/"),
                urlencode(query),
                {"authorization": "Bearer owner"},
                b"" if body is None else json.dumps(body).encode(),
            ),
        )
        if isinstance(reply, Deferred):
            assert isinstance(reply.value, dict), "it is still to come"
            return 200, reply.value
        answer = json.loads(reply.content)
        if reply.status == 200 and "fields" not in query:
            conforms(verb, version, path, answer)
        return reply.status, answer

    def ok(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        status, answer = self(verb, path, body, **query)
        assert status == 200, answer
        return answer

    def get(self, path: str, **query: Any) -> Any:
        return self.ok("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """The operation; it must not have failed."""
        answer = self.ok("POST", path, body, **query)
        assert "error" not in answer, answer
        return answer

    def delete(self, path: str, **query: Any) -> Any:
        return self.ok("DELETE", path, **query)

    def refused(self, verb: str, path: str, body: Any = None, **query: Any) -> tuple[int, str, str]:
        """Status, reason and message of a call that must fail."""
        status, answer = self(verb, path, body, **query)
        assert status != 200, answer
        (entry,) = answer["error"]["errors"]
        return status, entry["reason"], entry["message"]
