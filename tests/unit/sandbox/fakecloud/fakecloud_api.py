"""Calls of any service in this thread, as the owner or as a service account."""

import json
from typing import Any
from urllib.parse import urlencode

from muster_sandbox.fakecloud import Cloud, handle, identity
from muster_sandbox.fakecloud.http import Deferred, Request

PROJECT = "projects/demo-project"
NUMBER = "projects/123456789012"
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"


class Api:
    """`api(verb, path, body, **query)` -> (status, JSON); paths from the root on."""

    def __init__(self, cloud: Cloud, token: str = identity.OWNER_TOKEN) -> None:
        self.cloud = cloud
        self.token = token

    def __call__(
        self, verb: str, path: str, body: Any = None, **query: Any
    ) -> tuple[int, dict[str, Any]]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token}", "host": "fake.test:80"}
        headers |= query.pop("headers", {})
        reply = handle(
            self.cloud,
            Request(
                verb, path, urlencode(query, doseq=True), headers, b"" if body is None else content
            ),
        )
        if isinstance(reply, Deferred):
            assert isinstance(reply.value, dict), "it is still to come"
            return 200, reply.value
        self.headers = reply.headers
        self.content = reply.content
        is_json = reply.headers.get("content-type", "").startswith("application/json")
        return reply.status, json.loads(reply.content) if is_json else {}

    def ok(self, verb: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        status, answer = self(verb, path, body, **query)
        assert status in {200, 204}, answer
        return answer

    def refused(self, verb: str, path: str, body: Any = None, **query: Any) -> tuple[int, str, str]:
        """Status, reason and message of a call that must fail."""
        status, answer = self(verb, path, body, **query)
        assert status >= 400, answer
        (entry,) = answer["error"]["errors"]
        assert answer["error"]["message"] == entry["message"]
        return status, entry["reason"], entry["message"]

    def account(self, name: str) -> "Api":
        """A new service account that may do nothing yet, and calls as it."""
        body = {"accountId": name, "serviceAccount": {"displayName": name}}
        made = self.ok("POST", f"/iam/v1/{PROJECT}/serviceAccounts", body)
        return self.token_of(made["email"])

    def token_of(self, email: str, *scopes: str, seconds: float = 3600) -> "Api":
        """Calls as an account with a token of some scopes; cloud-platform if none is given."""
        token = identity.issue(self.cloud, email, scopes or (CLOUD_PLATFORM,), seconds)
        caller = Api(self.cloud, token)
        caller.email = email
        return caller

    email = "owner@example.com"

    def grant(self, resource: str, role: str, *members: str, condition: str = "") -> None:
        """Add a binding to the policy of a resource: the address of its :getIamPolicy."""
        policy = self.read_policy(resource)
        binding: dict[str, Any] = {"role": role, "members": list(members)}
        if condition:
            binding["condition"] = {"title": "test", "expression": condition}
        policy["bindings"] = [*policy.get("bindings", []), binding]
        self.write_policy(resource, {**policy, "version": 3})

    def read_policy(self, resource: str) -> dict[str, Any]:
        if resource.startswith("/storage/"):
            return self.ok("GET", f"{resource}/iam", optionsRequestedPolicyVersion=3)
        if resource.startswith("/compute/"):
            return self.ok("GET", f"{resource}/getIamPolicy", optionsRequestedPolicyVersion=3)
        if resource.startswith("/secretmanager/"):
            options = {"options.requestedPolicyVersion": 3}
            return self.ok("GET", f"{resource}:getIamPolicy", **options)
        if resource.startswith("/iam/"):
            options = {"options.requestedPolicyVersion": 3}
            return self.ok("POST", f"{resource}:getIamPolicy", **options)
        body = {"options": {"requestedPolicyVersion": 3}}
        return self.ok("POST", f"{resource}:getIamPolicy", body)

    def write_policy(self, resource: str, policy: dict[str, Any]) -> dict[str, Any]:
        if resource.startswith("/storage/"):
            return self.ok("PUT", f"{resource}/iam", policy)
        if resource.startswith("/compute/"):
            return self.ok("POST", f"{resource}/setIamPolicy", {"policy": policy})
        return self.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})

    @property
    def member(self) -> str:
        return f"serviceAccount:{self.email}"


def role(api: Api, role_id: str, *permissions: str) -> str:
    """A new custom role's name."""
    body = {"roleId": role_id, "role": {"title": role_id, "includedPermissions": permissions}}
    return str(api.ok("POST", f"/iam/v1/{PROJECT}/roles", body)["name"])
