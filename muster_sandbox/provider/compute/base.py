"""Base class of Compute Engine's resources: a collection in a place, operations, links."""

from collections.abc import Mapping
from typing import Any, ClassVar

from muster_sandbox.provider.links import relative
from muster_sandbox.provider.resource import Made, Resource

FULL = {"view": "FULL"}


class ComputeResource(Resource):
    """POST to a collection, wait for the operation, GET; the id is the path."""

    collection: ClassVar[str]
    scope: ClassVar[str] = "global"
    """`global`, `region` or `zone`."""

    def place(self, inputs: Mapping[str, Any]) -> str:
        """Return the path of the place the resource is in: `projects/P/zones/Z`."""
        project = f"projects/{self.project(inputs)}"
        if self.scope == "region":
            return f"{project}/regions/{self.region(inputs)}"
        if self.scope == "zone":
            return f"{project}/zones/{self.zone(inputs)}"
        return f"{project}/global"

    def identity(self, inputs: Mapping[str, Any]) -> str:
        """Return the path of the resource, which is its id."""
        return f"{self.place(inputs)}/{self.collection}/{inputs['name']}"

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        # The provider writes regions and zones of a body in this form.
        if self.sends("region"):
            body["region"] = f"projects/{self.project(inputs)}/global/regions/{self.region(inputs)}"
        if self.sends("zone"):
            body["zone"] = f"projects/{self.project(inputs)}/global/zones/{self.zone(inputs)}"
        return body

    def sends(self, place: str) -> bool:
        """Say whether the body has a region or zone, besides the path."""
        return place in self.fields and not self.fields[place].local

    def create(self, inputs: Mapping[str, Any]) -> Made:
        self.act("POST", f"{self.place(inputs)}/{self.collection}", self.body(inputs), "Creating")
        identity = self.identity(inputs)
        return Made(identity, self.get(identity))

    def get(self, identity: str) -> dict[str, Any]:
        """Return the resource, which must be there."""
        return self.rest.call("GET", self.product, identity)

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.rest.exists("GET", self.product, identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        operation = self.rest.exists("DELETE", self.product, identity)
        if operation is not None:
            self.rest.finish(operation, project_of(identity), f"Deleting {self.title}")

    def act(
        self,
        method: str,
        path: str,
        body: Any = None,
        activity: str = "Updating",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call a method that returns an operation, and wait for its end."""
        operation = self.rest.call(method, self.product, path, body=body, query=query)
        return self.rest.finish(operation, project_of(path), f"{activity} {self.title}")

    def set_labels(self, identity: str, state: Mapping[str, Any], labels: Any) -> None:
        """Replace the labels of a resource that has a method for it."""
        self.act(
            "POST",
            f"{identity}/setLabels",
            {"labelFingerprint": state.get("labelFingerprint"), "labels": labels},
        )


def project_of(path: str) -> str:
    """Return the project of `projects/P/...`."""
    return relative(path).split("/")[1]
