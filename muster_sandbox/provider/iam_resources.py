"""Service accounts and custom roles."""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.links import same_set
from muster_sandbox.provider.resource import PROJECT, Made, Resource
from muster_sandbox.provider.rest import CloudError
from muster_sandbox.provider.values import UNKNOWN, has_unknown

SHOWN = 3
"""Reads after a service account is made (half a second apart, then 10 s; not here)."""


class IamResource(Resource):
    """The id is the path."""

    product = "iam_beta"

    def get(self, identity: str) -> dict[str, Any]:
        """Return the resource, which must be there."""
        return self.rest.call("GET", self.product, identity)

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.rest.exists("GET", self.product, identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        self.rest.exists("DELETE", self.product, identity)


class Account(IamResource):
    kind = "serviceaccount/account:Account"
    named_by = "accountId"
    fields = {
        "accountId": Field(local=True, replace=True, computed=True),
        "description": Field(),
        "displayName": Field(),
        "project": Field(api="projectId", replace=True, computed=True),
    }
    outputs = {"email": "email", "name": "name", "uniqueId": "uniqueId"}

    def create(self, inputs: Mapping[str, Any]) -> Made:
        names = ("description", "displayName")
        account = {name: inputs[name] for name in names if inputs.get(name)}
        answer = self.rest.call(
            "POST",
            self.product,
            f"projects/{self.project(inputs)}/serviceAccounts",
            body={"accountId": inputs["accountId"], "serviceAccount": account},
        )
        for _ in range(SHOWN):
            answer = self.get(answer["name"])
        return Made(answer["name"], answer)

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        # Unlike elsewhere, what the cloud says counts: without it the account is replaced.
        state["project"] = answer.get("projectId")
        state["accountId"] = answer["email"].split("@")[0]
        return state | {"member": f"serviceAccount:{answer['email']}"}

    def planned(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """The address is known before the account is made."""
        plan = super().planned(inputs, state)
        if has_unknown(inputs.get("accountId")) or has_unknown(inputs.get("project")):
            return plan | {"member": UNKNOWN}
        email = f"{inputs['accountId']}@{self.project(inputs)}.iam.gserviceaccount.com"
        return plan | {"email": email, "member": f"serviceAccount:{email}"}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        self.get(identity)
        masks = {"description": "description", "displayName": "display_name"}
        body = {
            "serviceAccount": {name: inputs.get(name, "") for name in changed},
            "updateMask": ",".join(masks[name] for name in sorted(changed)),
        }
        self.rest.call("PATCH", self.product, identity, body=body)
        return self.rest.wait_until(
            lambda: self.get(identity),
            lambda answer: all(answer.get(name, "") == inputs.get(name, "") for name in changed),
        )


class CustomRole(IamResource):
    kind = "projects/iAMCustomRole:IAMCustomRole"
    named_by = None
    fields = {
        "description": Field(),
        "permissions": Field(api="includedPermissions", same=same_set),
        "project": PROJECT,
        "roleId": Field(local=True, replace=True),
        "stage": Field(default="GA"),
        "title": Field(),
    }
    outputs = {"deleted": "deleted", "name": "name"}

    def identity(self, inputs: Mapping[str, Any]) -> str:
        """Return the path of the role."""
        return f"projects/{self.project(inputs)}/roles/{inputs['roleId']}"

    def create(self, inputs: Mapping[str, Any]) -> Made:
        identity = self.identity(inputs)
        there = self.read(identity, {})
        if there is None:
            path = f"projects/{self.project(inputs)}/roles"
            body = {"roleId": inputs["roleId"], "role": self.body(inputs)}
            self.rest.call("POST", self.product, path, body=body)
        elif there.get("deleted"):
            self.rest.call("POST", self.product, f"{identity}:undelete", body={})
            self.rest.call("PATCH", self.product, identity, body=self.body(inputs))
        else:
            raise CloudError(f"Custom project role {identity} already exists and must be imported")
        return Made(identity, self.get(identity))

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        return state | {
            "deleted": bool(state["deleted"]),
            "roleId": inputs.get("roleId") or identity.rsplit("/", 1)[1],
        }

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        if self.get(identity).get("deleted"):
            self.rest.call("POST", self.product, f"{identity}:undelete", body={})
        self.rest.call("PATCH", self.product, identity, body=self.body(inputs))
        return self.get(identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        role = self.read(identity, state)
        if role is not None and not role.get("deleted"):
            super().delete(identity, state)
