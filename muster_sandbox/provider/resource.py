"""Base class of all mappings: a class per resource type, registered by the type's name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from muster_sandbox.provider.fields import Change, Field, Fields, to_body, to_state
from muster_sandbox.provider.links import last
from muster_sandbox.provider.rest import CloudError, Rest
from muster_sandbox.provider.values import UNKNOWN

PROVISIONED = "goog-pulumi-provisioned"
"""Label that the provider puts on each resource that has labels."""

MAPPINGS: dict[str, type["Resource"]] = {}
"""`compute/network:Network` -> its mapping."""

PROJECT = Field(local=True, replace=True, computed=True)
REGION = Field(
    receive=last, same=lambda new, old: last(new) == last(old), replace=True, computed=True
)
ZONE = REGION
LABELS = Field()
"""The input `labels`; `labels` and `label_outputs` below send and show it."""


@dataclass(frozen=True)
class Made:
    """A new resource: its id in the state, and the cloud's answer."""

    id: str
    answer: dict[str, Any]


class Resource:
    """Turns one resource type into REST calls.

    The methods get inputs as plain values: no unknown values, no wrappers of secrets.
    """

    kind: ClassVar[str]
    product: ClassVar[str] = "compute"
    fields: ClassVar[Fields]

    outputs: ClassVar[Mapping[str, str]] = {}
    """Outputs that are not inputs -> their dotted names in the REST answer."""

    named_by: ClassVar[str | None] = "name"
    """The input that gets a generated value if the program gives none."""

    deletes_first: ClassVar[bool] = False
    """Whether a replacement first deletes the old one: DeleteBeforeReplace in pulumi-gcp's
    provider/resources.go. The program's own `delete_before_replace` goes first."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest

    def __init_subclass__(cls) -> None:
        if "kind" in cls.__dict__:
            MAPPINGS[cls.kind] = cls

    @property
    def title(self) -> str:
        """The type's name in messages."""
        return self.kind.rsplit(":", 1)[1]

    # Each mapping implements these.

    @classmethod
    def refusals(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 (those who say something read it)
    ) -> Iterator[tuple[str, str]]:
        """Yield (input, sentence) for errors that a check of single inputs doesn't find."""
        yield from ()

    def create(self, inputs: Mapping[str, Any]) -> Made:
        """Make the resource."""
        raise NotImplementedError

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the cloud's answer for the resource, None if it is gone."""
        raise NotImplementedError

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        """Change the resource, and return the cloud's answer for it."""
        raise CloudError(
            f"{self.title}: the stand-in knows no change of {', '.join(sorted(changed))}"
        )

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        """Delete the resource; it is no error if it doesn't exist."""
        raise NotImplementedError

    def refine(
        self, changes: list[Change], state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> list[Change]:
        """Return the changes with this type's own rules; it may call the cloud."""
        return changes

    # All mappings share these.

    def project(self, inputs: Mapping[str, Any]) -> str:
        """Return the project the resource is in."""
        return last(inputs.get("project")) or self.rest.project

    def region(self, inputs: Mapping[str, Any]) -> str:
        """Return the region the resource is in."""
        return last(inputs.get("region")) or self.rest.region

    def zone(self, inputs: Mapping[str, Any]) -> str:
        """Return the zone the resource is in."""
        return last(inputs.get("zone")) or self.rest.zone

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the REST object to send."""
        body = to_body(self.fields, inputs)
        if "labels" in self.fields:
            body["labels"] = effective_labels(inputs)
        return body

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return all outputs for the cloud's answer and the program's inputs."""
        state = to_state(self.fields, answer, inputs)
        for name, path in self.outputs.items():
            value: Any = answer
            for part in path.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            state[name] = value
        if "project" in self.fields:
            state["project"] = self.project(inputs)
        if "labels" in self.fields:
            state.update(labels_state(inputs, answer.get("labels") or {}))
        return state

    def planned(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a preview's outputs that are not inputs: old values, or unknown."""
        plan = {name: state.get(name, UNKNOWN) for name in self.outputs}
        if "labels" in self.fields:
            effective = effective_labels(inputs)
            plan |= {"effectiveLabels": effective, "pulumiLabels": effective}
        return plan


def effective_labels(inputs: Mapping[str, Any]) -> Any:
    """Return the labels that a resource gets."""
    labels = inputs.get("labels") or {}
    return {**labels, PROVISIONED: "true"} if isinstance(labels, Mapping) else UNKNOWN


def labels_state(inputs: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the three label outputs: the program's, these with the provider's, and all."""
    given = inputs.get("labels") or {}
    return {
        "labels": {name: labels[name] for name in given if name in labels},
        "pulumiLabels": {name: labels[name] for name in [*given, PROVISIONED] if name in labels},
        "effectiveLabels": dict(labels),
    }
