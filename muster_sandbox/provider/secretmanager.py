"""Secrets and their versions."""

import base64
from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.links import same_link
from muster_sandbox.provider.resource import PROJECT, Made, Resource
from muster_sandbox.provider.rest import CloudError

REPLICA = {"location": Field(replace=True)}


class Secret(Resource):
    """The id is `projects/P/secrets/S`; the output `name` has the project's number."""

    kind = "secretmanager/secret:Secret"
    product = "secret_manager"
    named_by = "secretId"
    deletes_first = True
    fields = {
        "annotations": Field(),
        "deletionProtection": Field(local=True, default=False),
        "labels": Field(),
        "project": PROJECT,
        "replication": Field(
            replace=True,
            fields={
                "auto": Field(api="automatic", replace=True, fields={}),
                "userManaged": Field(
                    replace=True,
                    fields={"replicas": Field(many=True, replace=True, fields=REPLICA)},
                ),
            },
        ),
        "secretId": Field(local=True, replace=True, computed=True),
    }
    outputs = {"createTime": "createTime", "name": "name"}

    def identity(self, inputs: Mapping[str, Any]) -> str:
        """Return the path of the secret."""
        return f"projects/{self.project(inputs)}/secrets/{inputs['secretId']}"

    def create(self, inputs: Mapping[str, Any]) -> Made:
        self.rest.call(
            "POST",
            self.product,
            f"projects/{self.project(inputs)}/secrets",
            query={"secretId": inputs["secretId"]},
            body=self.body(inputs),
        )
        identity = self.identity(inputs)
        return Made(identity, self.get(identity))

    def get(self, identity: str) -> dict[str, Any]:
        """Return the secret, which must be there."""
        return self.rest.call("GET", self.product, identity)

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.rest.exists("GET", self.product, identity)

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        state["secretId"] = inputs.get("secretId") or identity.rsplit("/", 1)[1]
        return state | {"effectiveAnnotations": answer.get("annotations", {})}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        sent = sorted(changed - {"deletionProtection"})
        if sent:
            whole = self.body(inputs)
            body = {name: whole.get(name, {}) for name in sent}
            query = {"updateMask": ",".join(sent)}
            self.rest.call("PATCH", self.product, identity, query=query, body=body)
        return self.get(identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        if state.get("deletionProtection"):
            raise CloudError(
                f"cannot destroy Secret {identity} without setting deletion_protection=false"
                " and running `pulumi up`"
            )
        self.rest.exists("DELETE", self.product, identity)


class SecretVersion(Resource):
    """A value of a secret: the state keeps it, encrypted; Muster's program makes none."""

    kind = "secretmanager/secretVersion:SecretVersion"
    product = "secret_manager"
    named_by = None
    fields = {
        "deletionPolicy": Field(local=True, default="DELETE"),
        "enabled": Field(local=True, default=True),
        "secret": Field(local=True, replace=True, same=same_link),
        "secretData": Field(local=True, replace=True),
    }
    outputs = {"createTime": "createTime", "destroyTime": "destroyTime", "name": "name"}

    def create(self, inputs: Mapping[str, Any]) -> Made:
        data = base64.b64encode(str(inputs["secretData"]).encode()).decode()
        answer = self.rest.call(
            "POST",
            self.product,
            f"{inputs['secret']}:addVersion",
            body={"payload": {"data": data}},
        )
        self.switch(answer["name"], enabled=inputs.get("enabled", True))
        return Made(answer["name"], self.rest.call("GET", self.product, answer["name"]))

    def switch(self, name: str, *, enabled: bool) -> None:
        """Enable or disable the version."""
        action = "enable" if enabled else "disable"
        self.rest.call("POST", self.product, f"{name}:{action}", body={})

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        answer = self.rest.exists("GET", self.product, identity)
        return None if answer is None or answer["state"] == "DESTROYED" else answer

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        state["enabled"] = answer["state"] == "ENABLED"
        return state | {"version": identity.rsplit("/", 1)[1]}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        self.switch(identity, enabled=inputs.get("enabled", True))
        return self.rest.call("GET", self.product, identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        policy = state.get("deletionPolicy", "DELETE")
        if policy == "DISABLE":
            self.switch(identity, enabled=False)
        elif policy == "DELETE" and self.read(identity, state) is not None:
            self.rest.call("POST", self.product, f"{identity}:destroy", body={})
