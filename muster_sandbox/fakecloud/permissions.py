"""Whether an identity may make a call: permissions.yml compared with the granted roles.

Before each handler: is the service enabled in the project, do the token's scopes include it, and
does the caller have each permission that the method needs, on the resource or one of its parents.
Denials have the same words as those of Google's services.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from muster_sandbox.fakecloud import descriptions, enabled_apis, policies, resource_names, roles
from muster_sandbox.fakecloud.api_errors import ApiError, not_implemented, permission_denied
from muster_sandbox.fakecloud.call import Call
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.identity import Identity

VARIABLE = re.compile(r"\{([^}]+)\}")
Context = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """A line of permissions.yml."""

    permission: str
    on: str
    element_of: str = ""
    where: str = ""
    equal: Mapping[str, Any] = field(default_factory=dict)
    unequal: Mapping[str, Any] = field(default_factory=dict)
    see: str = ""

    def resources(self, context: Context) -> Iterator[tuple[str, str]]:
        """The (permission, resource) pairs that a call needs because of this line."""
        items: Iterable[Any] = [None]
        if self.element_of:
            items = _look(context["body"], self.element_of) or []
        for item in items:
            scope = {**context, "it": item}
            at = [item] if self.element_of else [context["body"], context["query"], context]
            if self.where and not any(_look(place, self.where) for place in at):
                continue
            if any(_look(at[0], path) != value for path, value in self.equal.items()):
                continue
            if any(_look(at[0], path) == value for path, value in self.unequal.items()):
                continue
            yield _fill(self.permission, scope), _fill(self.on, scope)


def _look(value: Any, path: str) -> Any:
    for name in path.split("."):
        # All are dicts; a test for Mapping would be slower than the rest.
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


Part = str | tuple[str, ...]


@cache
def _parsed(pattern: str) -> tuple[Part, ...]:
    """A pattern as texts and, for its variables, the paths to look up, in order."""
    pieces = VARIABLE.split(pattern)
    return tuple(
        tuple(piece.split("|")) if position % 2 else piece for position, piece in enumerate(pieces)
    )


def _fill(pattern: str, context: Context) -> str:
    return "".join(
        part if isinstance(part, str) else _first(part, context) for part in _parsed(pattern)
    )


def _first(paths: Iterable[str], context: Context) -> str:
    for path in paths:
        value = _look(context, path)
        if value:
            return str(value)
    return ""


@cache
def needs() -> dict[str, tuple[Need, ...]]:
    """Method id -> its needs, except those that its service checks itself."""
    document = roles.document("permissions.yml")
    table = {}
    for service in document["services"].values():
        for method, lines in service["methods"].items():
            entries = document["shared"][lines["uses"]] if isinstance(lines, dict) else lines
            table[method] = tuple(
                _need(entry, document["resources"])
                for entry in entries
                if isinstance(entry, str) or "asked_by" not in entry
            )
    return table


def _need(entry: Any, resources: Mapping[str, str]) -> Need:
    if isinstance(entry, str):
        permission, _, target = entry.partition(" on ")
        entry = {"need": permission, "target": target}
    return Need(
        permission=entry["need"],
        on=resources.get(entry["target"], entry["target"]),
        element_of=entry.get("each", ""),
        where=entry.get("where", ""),
        equal=entry.get("is", {}),
        unequal=entry.get("is_not", {}),
        see=entry.get("see", ""),
    )


def page(method: str) -> str:
    """The address of Google's documentation of a method's permissions."""
    *collection, verb = method.split(".")[1:]
    services = roles.document("permissions.yml")["services"]
    address: str = services[method.partition(".")[0]]["page"]
    return address.format(collection=".".join(collection), verb=verb)


def check(call: Call) -> None:
    """Called before each handler; ApiError 403 where the granted roles don't allow the call."""
    if call.method not in needs():
        raise not_implemented(f"the permissions of {call.method}")
    enabled_apis.require(call.cloud, call.method.partition(".")[0])
    _check_scopes(call)
    checked = set()
    for context in _contexts(call):
        for need in needs()[call.method]:
            for permission, resource in need.resources(context):
                if (permission, resource) not in checked:
                    checked.add((permission, resource))
                    require(call, permission, resource)


def require(call: Call, permission: str, resource: str) -> None:
    """Refuse the call unless its caller has a permission on a resource (by any of its names)."""
    name = resource_names.canonical(call.cloud, resource)
    if name.startswith("projects/_/buckets/"):
        # Storage answers 404 for a missing bucket, whatever the caller's permissions.
        resource_names.find_bucket(call.cloud, name.split("/")[3])
    if not allowed(call.cloud, call.identity, permission, name):
        raise denied(call, permission, name)


def allowed(cloud: Cloud, identity: Identity, permission: str, name: str) -> bool:
    """Whether an identity has a permission on a resource, by its canonical name."""
    members = identity.members
    conditions: dict[str, str] = {}
    for level in resource_names.levels(cloud, name):
        for grant in policies.grants(cloud, level):
            if permission not in policies.permissions_of(cloud, grant.role):
                continue
            if members.isdisjoint(grant.members) and not _by_project_role(cloud, identity, grant):
                continue
            if grant.condition is None:
                return True
            conditions = conditions or resource_names.attributes(cloud, name)
            if grant.condition(conditions):
                return True
    return False


def _by_project_role(cloud: Cloud, identity: Identity, grant: policies.Grant) -> bool:
    """Whether a grant to projectOwner:P, projectEditor:P or projectViewer:P is the identity's."""
    for member in grant.members:
        kind, _, project = member.partition(":")
        if kind.startswith("project") and kind[7:] in {"Owner", "Editor", "Viewer"}:
            role = f"roles/{kind[7:].lower()}"
            for binding in policies.grants(cloud, f"projects/{project}"):
                if binding.role == role and not identity.members.isdisjoint(binding.members):
                    return True
    return False


def _check_scopes(call: Call) -> None:
    """A token is good for the methods whose description names one of its scopes."""
    description = descriptions.load(f"{call.method.partition('.')[0]}.{call.version}")
    wanted = description.methods[call.method].scopes
    if call.identity.scopes is not None and wanted.isdisjoint(call.identity.scopes):
        raise ApiError(
            403,
            "insufficientPermissions",
            "Request had insufficient authentication scopes.",
            details=[_error_info("ACCESS_TOKEN_SCOPE_INSUFFICIENT", "googleapis.com", {})],
        )


def _error_info(reason: str, domain: str, metadata: Mapping[str, str]) -> Resource:
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    return {"@type": kind, "reason": reason, "domain": domain, "metadata": dict(metadata)}


def denied(call: Call, permission: str, name: str) -> ApiError:
    """The 403 for a missing permission, in the words of the service that was called."""
    service = call.method.partition(".")[0]
    email = call.identity.email
    if service == "compute":
        if permission == "iam.serviceAccounts.actAs":
            return permission_denied(
                f"The user does not have access to service account '{name.rsplit('/', 1)[1]}'.  "
                f"User: '{email}'.  Ask a project owner to grant you the "
                "iam.serviceAccountUser role on the service account"
            )
        return permission_denied(f"Required '{permission}' permission for '{name}'")
    if service == "storage":
        kind = "project" if "/buckets/" not in name else permission.split(".")[1].rstrip("s")
        return permission_denied(
            f"{email} does not have {permission} access to the Google Cloud Storage {kind}. "
            f"Permission '{permission}' denied on resource (or it may not exist)."
        )
    target = f"for resource '{name}'" if service == "secretmanager" else "on resource"
    return ApiError(
        403,
        "forbidden",
        f"Permission '{permission}' denied {target} (or it may not exist).",
        details=[
            _error_info(
                "IAM_PERMISSION_DENIED",
                "iam.googleapis.com",
                {"permission": permission, "resource": name},
            )
        ],
    )


def _contexts(call: Call) -> Iterator[Context]:
    """The values for patterns: one mapping for a call, or one for each instance that it makes."""
    context: dict[str, Any] = {**call.parameters, "query": call.query}
    if call.method.startswith("iap."):
        context["tunnel"] = _tunnel(call.parameters["resource"])
    if call.method == "compute.instances.setMetadata":
        context["instance_account"] = _account_of(call)
    if call.method.endswith("nstances.bulkInsert"):
        yield from _bulk_contexts(call, context)
        return
    body = call.body or {}
    if call.method == "compute.instances.insert":
        body = {**_template(call, call.query.get("sourceInstanceTemplate")), **body}
    yield {**context, "body": body}


def _tunnel(resource: str) -> str:
    parts = resource.split("/")
    return {3: "iap.tunnel", 5: "iap.tunnelZones"}.get(len(parts), "iap.tunnelInstances")


def _bulk_contexts(call: Call, context: Context) -> Iterator[Context]:
    body = call.body or {}
    template = body.get("sourceInstanceTemplate")
    made = {
        **_template(call, template),
        **(body.get("instanceProperties") or {}),
        "sourceInstanceTemplate": template,
    }
    zone = call.parameters.get("zone") or _first_zone(call, body)
    per_instance = body.get("perInstanceProperties") or {}
    instances = [per_instance[key].get("name", key) for key in per_instance] or [
        body.get("namePattern", "")
    ]
    for name in instances:
        yield {**context, "zone": zone, "body": {**made, "name": name}}


def _first_zone(call: Call, body: Resource) -> str:
    """A zone that a regional bulkInsert may choose: the choice isn't known yet."""
    locations = (body.get("locationPolicy") or {}).get("locations") or {}
    allowed = [name for name in locations if locations[name].get("preference") != "DENY"]
    return allowed[0].rpartition("/")[2] if allowed else f"{call.parameters['region']}-a"


def _template(call: Call, reference: str | None) -> Resource:
    """The properties of an instance template; {} if there is none, which the handler reports."""
    if not reference:
        return {}
    wanted = reference.rpartition("/")[2]
    templates = call.cloud.store.within("compute.instanceTemplates", f"{call.project}/global")
    template = templates.get(wanted)
    if template is None:
        template = next(
            (candidate for candidate in templates.values() if candidate["id"] == wanted), None
        )
    properties: Resource = template["properties"] if template else {}
    return properties


def _account_of(call: Call) -> str:
    """The email of the account that the call's instance runs as, or ""."""
    scope = f"{call.project}/zones/{call.parameters['zone']}"
    instance = call.cloud.store.get("compute.instances", scope, call.parameters["instance"])
    accounts = (instance or {}).get("serviceAccounts") or [{}]
    return str(accounts[0].get("email", ""))
