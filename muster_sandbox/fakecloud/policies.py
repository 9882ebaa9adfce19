"""IAM policies: reading, checking and replacing them, and what they grant.

https://cloud.google.com/iam/docs/reference/rest/v1/Policy. All services share the rules; each has
its own methods, which call `read` and `write`.
"""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from muster.catalog.iam_limits import CONDITIONS_OF_A_ROLE
from muster_sandbox.fakecloud import (
    byte_values,
    iam_conditions,
    policies_in_force,
    resource_names,
    roles,
)
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, not_implemented
from muster_sandbox.fakecloud.cloud import PUBLIC_PROJECTS, Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.iam_conditions import Condition, ConditionError

KIND = "iam.policies"
"""The store's kind; scope "", name: the resource's canonical name."""
CUSTOM_ROLES = "iam.roles"
"""Custom roles; scope: project id, name: role id."""
NO_ETAG = "ACAB"
"""The etag of a policy that was never set, as Google's."""

MEMBER_KINDS = frozenset(
    {
        "user",
        "serviceAccount",
        "group",
        "domain",
        "projectOwner",
        "projectEditor",
        "projectViewer",
        "deleted",
    }
)
EVERYBODY = frozenset({"allUsers", "allAuthenticatedUsers"})
# Who may use the images that Google publishes:
# https://cloud.google.com/compute/docs/images#os-compute-support
PUBLIC_IMAGES = {
    "bindings": [{"role": "roles/compute.imageUser", "members": ["allAuthenticatedUsers"]}]
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A parsed binding. `condition` is None if it always holds."""

    role: str
    members: frozenset[str]
    condition: Condition | None


_read: WeakKeyDictionary[Cloud, dict[str, tuple[Any, tuple[Grant, ...]]]] = WeakKeyDictionary()
"""Resource -> its stored policy and the parsed grants: a call looks at many, often."""


def grants(cloud: Cloud, name: str) -> tuple[Grant, ...]:
    """The grants that are in force of a resource's own policy; `name` is canonical."""
    policy: Any = policies_in_force.in_force(cloud, name, cloud.store.get(KIND, "", name))
    if policy is None:
        if name.removeprefix("projects/") not in PUBLIC_PROJECTS:
            return ()
        policy = PUBLIC_IMAGES
    cache = _read.setdefault(cloud, {})
    known = cache.get(name)
    # What is stored is never changed in place, so the same object is the same policy.
    if known is None or known[0] is not policy:
        known = cache[name] = policy, tuple(_grant(binding) for binding in policy["bindings"])
    return known[1]


def _grant(binding: Resource) -> Grant:
    expression = (binding.get("condition") or {}).get("expression")
    return Grant(
        binding["role"],
        frozenset(binding["members"]),
        iam_conditions.parse(expression) if expression else None,
    )


def permissions_of(cloud: Cloud, role: str) -> frozenset[str]:
    """The permissions of a role as it is now; none of one that was deleted or disabled."""
    predefined = roles.predefined().get(role)
    if predefined:
        return predefined.permissions
    custom = _custom(cloud, role)
    if not custom or custom.get("deleted") or custom.get("stage") == "DISABLED":
        return frozenset()
    return frozenset(custom.get("includedPermissions", []))


def _custom(cloud: Cloud, role: str) -> Resource | None:
    parts = role.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != "roles":
        return None
    return cloud.store.get(CUSTOM_ROLES, parts[1], parts[3])


def read(cloud: Cloud, name: str, version: int = 0) -> Resource:
    """The policy of a resource as its owner reads it.

    A reader that asks for less than version 3 doesn't know conditions and gets a role name that
    doesn't exist: https://cloud.google.com/iam/docs/policies#policy-version
    """
    policy = cloud.store.get(KIND, "", resource_names.canonical(cloud, name))
    if policy is None:
        return {"version": 1, "etag": NO_ETAG}
    if version >= 3 or not any("condition" in binding for binding in policy["bindings"]):
        return policy
    return {
        **policy,
        "version": 1,
        "bindings": [_hidden(binding) for binding in policy["bindings"]],
    }


def _hidden(binding: Resource) -> Resource:
    if "condition" not in binding:
        return binding
    digest = hashlib.sha256(json.dumps(binding["condition"], sort_keys=True).encode()).hexdigest()
    role = f"{binding['role']}_withcond_{digest[:20]}"
    return {"role": role, "members": binding["members"]}


def write(cloud: Cloud, name: str, policy: Resource, *, stale_status: int = 409) -> Resource:
    """Replace the policy of a resource and return it.

    Raises:
        ApiError: `stale_status` if the etag isn't the present one; 400 for invalid bindings.

    """
    name = resource_names.canonical(cloud, name)
    present = cloud.store.get(KIND, "", name)
    etag = policy.get("etag")
    if etag and not byte_values.same(etag, present["etag"] if present else NO_ETAG):
        raise ApiError(
            stale_status,
            "aborted" if stale_status == 409 else "conditionNotMet",
            "There were concurrent policy changes. Please retry the whole read-modify-write with "
            "exponential backoff.",
            code="ABORTED" if stale_status == 409 else "FAILED_PRECONDITION",
        )
    if policy.get("auditConfigs"):
        raise not_implemented("audit logs (auditConfigs)")
    kept = {binding["role"] for binding in present["bindings"]} if present else set()
    bindings = [_checked(cloud, binding, policy, kept) for binding in policy.get("bindings") or []]
    _check_conditions(bindings)
    policies_in_force.changed(cloud, name, present)
    return put(cloud, name, [binding for binding in bindings if binding["members"]])


def put(cloud: Cloud, name: str, bindings: list[Resource]) -> Resource:
    """Store bindings that need no check as the policy of a resource; `name` is canonical."""
    stored: Resource = {
        "version": 3 if any("condition" in binding for binding in bindings) else 1,
        "etag": base64.b64encode(secrets.token_bytes(8)).decode(),
        "bindings": bindings,
    }
    cloud.store.put(KIND, "", name, stored)
    return stored


def forget(cloud: Cloud, name: str) -> None:
    """Remove the policy of a deleted resource, if it has one."""
    name = resource_names.canonical(cloud, name)
    policies_in_force.forget(cloud, name)
    if cloud.store.get(KIND, "", name) is not None:
        cloud.store.delete(KIND, "", name)


def _checked(cloud: Cloud, binding: Resource, policy: Resource, kept: set[str]) -> Resource:
    """A binding as it is stored. `kept` are roles of the old policy, which may stay in any case."""
    role = binding.get("role", "")
    if role not in kept:
        _check_role(cloud, role)
    members = binding.get("members") or []
    for member in members:
        _check_member(cloud, member)
    checked: Resource = {"role": role, "members": list(dict.fromkeys(members))}
    condition = binding.get("condition")
    if not condition:
        return checked
    if int(policy.get("version", 1)) < 3:
        raise invalid(
            "Conditions can only be set in a policy of version 3: "
            "https://cloud.google.com/iam/docs/policies#policy-version"
        )
    if role in roles.BASIC:
        raise invalid(f"Conditions can't be set on basic roles: {role}")
    if not condition.get("title"):
        raise invalid("Condition: a title is required.")
    try:
        iam_conditions.parse(condition.get("expression", ""))
    except ConditionError as error:
        raise invalid(f"Condition '{condition['title']}': {error}") from error
    return {**checked, "condition": condition}


def _check_conditions(bindings: list[Resource]) -> None:
    """Refuse too many conditions under which a member has a role.

    https://cloud.google.com/iam/quotas#limits
    """
    expressions: dict[tuple[str, str], set[str]] = {}
    for binding in bindings:
        for member in binding["members"] if "condition" in binding else ():
            held = expressions.setdefault((binding["role"], member), set())
            held.add(binding["condition"]["expression"])
            if len(held) > CONDITIONS_OF_A_ROLE:
                raise invalid(
                    f"{member} has the role {binding['role']} under {len(held)} conditions, "
                    f"the most is {CONDITIONS_OF_A_ROLE}"
                )


def _check_role(cloud: Cloud, role: str) -> None:
    if role in roles.predefined():
        return
    custom = _custom(cloud, role)
    if custom is None:
        if role.startswith("roles/"):
            raise invalid(f"Role {role} is not supported for this resource.")
        raise invalid(f"Role ({role}) does not exist in the resource's hierarchy.")
    if custom.get("deleted"):
        raise invalid(f"You can't grant a deleted role: {role}")


def _check_member(cloud: Cloud, member: str) -> None:
    if member in EVERYBODY:
        return
    kind, _, who = member.partition(":")
    if kind not in MEMBER_KINDS or not who:
        raise invalid(f"Invalid member: {member}")
    if kind in {"user", "serviceAccount", "group"} and "@" not in who:
        raise invalid(f"The member {member} is of an unknown type or not an email address.")
    ours = f"@{cloud.settings.project}.iam.gserviceaccount.com"
    gone = cloud.store.get(resource_names.ACCOUNTS, cloud.settings.project, who) is None
    if kind == "serviceAccount" and who.endswith(ours) and gone:
        raise invalid(f"Service account {who} does not exist.")


def rename_member(cloud: Cloud, old: str, new: str) -> None:
    """Replace a member in all policies: a deleted account's bindings name its tombstone."""
    for _, name, policy in list(cloud.store.all(KIND)):
        if any(old in binding["members"] for binding in policy["bindings"]):
            renamed = [
                {**binding, "members": [new if one == old else one for one in binding["members"]]}
                for binding in policy["bindings"]
            ]
            put(cloud, name, renamed)
