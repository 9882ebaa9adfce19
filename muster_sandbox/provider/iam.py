"""Members of roles on any resource with a policy: read, modify, write back with the etag.

Each type has a class with the URLs to read and to write the policy. Changes of one policy that
come together are written together, as the provider does for projects.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.resource import Made, Resource
from muster_sandbox.provider.rest import HttpError

VERSION = 3
"""Version of policies with conditions: https://cloud.google.com/iam/docs/policies#versions"""

CONDITION = {
    "description": Field(local=True, replace=True),
    "expression": Field(local=True, replace=True),
    "title": Field(local=True, replace=True),
}
MEMBER = {
    "condition": Field(local=True, replace=True, fields=CONDITION),
    "member": Field(local=True, replace=True),
    "role": Field(local=True, replace=True),
}
READS = 3
"""Reads until a change of a policy is visible (a second apart in the provider; not here)."""

TRIES = 10
"""Attempts to read and write a policy that others write too."""

Policy = dict[str, Any]


class Member(Resource):
    """One member of one role."""

    named_by: ClassVar[str | None] = None
    target: ClassVar[Mapping[str, Field]]
    """The inputs that name the policy's resource."""

    batched: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "target" in cls.__dict__:
            cls.fields = {**MEMBER, **cls.target}
        super().__init_subclass__()

    def path(self, inputs: Mapping[str, Any]) -> str:
        """Return the path of the policy's resource; the id begins with it."""
        raise NotImplementedError

    def get_policy(self, path: str) -> Policy:
        """Return the policy."""
        raise NotImplementedError

    def set_policy(self, path: str, policy: Policy) -> None:
        """Replace the policy."""
        raise NotImplementedError

    def create(self, inputs: Mapping[str, Any]) -> Made:
        path = self.path(inputs)
        self.modify(path, lambda policy: with_member(policy, inputs))
        title = (inputs.get("condition") or {}).get("title")
        words = [path, inputs["role"], inputs["member"], *([title] if title else [])]
        return Made("/".join(words), self.get_policy(path))

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            policy = self.get_policy(self.path(state))
        except HttpError as error:
            if error.status == 404:
                return None
            raise
        return policy if binding_of(policy, state) else None

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        return super().state(identity, answer, inputs) | {"etag": answer.get("etag")}

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        try:
            self.modify(self.path(state), lambda policy: without_member(policy, state))
        except HttpError as error:
            if error.status != 404:
                raise

    def modify(self, path: str, change: Callable[[Policy], Policy]) -> None:
        """Change the policy, together with other waiting changes of it if they are batched."""
        if not self.batched:
            self.write(path, [change])
            return
        self.rest.batches.join(path, change, lambda changes: self.write(path, changes))

    def write(self, path: str, changes: list[Callable[[Policy], Policy]]) -> None:
        """Read, apply, write, and check the result; repeat if somebody else wrote meanwhile."""
        with self.rest.lock(f"policy {path}"):
            for left in reversed(range(TRIES)):
                policy = self.get_policy(path)
                for change in changes:
                    policy = change(policy)
                try:
                    self.set_policy(path, in_order(policy))
                    break
                except HttpError as error:
                    # Somebody else wrote meanwhile: the etag no longer fits.
                    if error.status not in (409, 412) or not left:
                        raise
                self.rest.pause(0.5)
            for _ in range(READS):
                self.get_policy(path)


def in_order(policy: Policy) -> Policy:
    """Return the policy as it is sent: sorted, and without what the cloud adds to an answer."""
    bindings = [
        {**binding, "members": sorted(binding["members"])}
        for binding in sorted(policy.get("bindings", []), key=binding_key)
    ]
    sent = {"bindings": bindings, "etag": policy.get("etag"), "version": policy.get("version")}
    return {name: value for name, value in sent.items() if value}


def binding_key(binding: Mapping[str, Any]) -> tuple[str, str]:
    """Return the role and the title of the condition."""
    return binding["role"], (binding.get("condition") or {}).get("title", "")


def binding_of(policy: Policy, member: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the binding of a policy that holds the member, under the same condition."""
    return next(
        (
            binding
            for binding in policy.get("bindings", [])
            if same_binding(binding, member) and member["member"] in binding.get("members", [])
        ),
        None,
    )


def same_binding(binding: Mapping[str, Any], member: Mapping[str, Any]) -> bool:
    """Say whether role and condition are the same."""
    there, wanted = binding.get("condition") or {}, member.get("condition") or {}
    names = ("expression", "title")
    return binding["role"] == member["role"] and all(
        there.get(name, "") == wanted.get(name, "") for name in names
    )


def with_member(policy: Policy, member: Mapping[str, Any]) -> Policy:
    """Return the policy with the member in it."""
    policy = {**policy, "version": VERSION}
    if binding_of(policy, member):
        return policy
    bindings = [dict(binding) for binding in policy.get("bindings", [])]
    for binding in bindings:
        if same_binding(binding, member):
            binding["members"] = [*binding.get("members", []), member["member"]]
            break
    else:
        new = {"role": member["role"], "members": [member["member"]]}
        if member.get("condition"):
            new["condition"] = dict(member["condition"])
        bindings.append(new)
    return {**policy, "bindings": bindings}


def without_member(policy: Policy, member: Mapping[str, Any]) -> Policy:
    """Return the policy without the member; a binding without members is removed."""
    bindings = []
    for binding in policy.get("bindings", []):
        members = binding.get("members", [])
        if same_binding(binding, member):
            members = [item for item in members if item != member["member"]]
        if members:
            bindings.append({**binding, "members": members})
    return {**policy, "bindings": bindings}
