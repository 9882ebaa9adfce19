"""IAM: custom roles of the project, and the predefined ones to read.

https://cloud.google.com/iam/docs/reference/rest/v1/projects.roles. A deleted role stays, marked,
and its id stays taken: https://cloud.google.com/iam/docs/creating-custom-roles#deleting-custom-role.
"""

import base64
import re
import secrets
from collections.abc import Iterable

from muster_sandbox.fakecloud import byte_values, query, roles
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.policies import CUSTOM_ROLES
from muster_sandbox.fakecloud.services.serviceusage import sized

ROLE_ID = re.compile(r"[a-zA-Z0-9_.]{3,64}")
FIELDS = ("title", "description", "includedPermissions", "stage")
PAGE = 300
# gcloud makes the name of its endpoint: //127.0.0.1:8085/cloudresourcemanager/projects/P
TESTED = re.compile(
    r"//(?:cloudresourcemanager\.googleapis\.com|[^/]+/cloudresourcemanager)/projects/([^/]+)"
)


def _parent(call: Call) -> str:
    return call.cloud.project_id(call.parameters["parent"].removeprefix("projects/"))


def _named(call: Call) -> tuple[str, str, Resource]:
    """Project, id and role of the path; 404 if it never existed."""
    _, project, _, role_id = call.parameters["name"].split("/")
    project = call.cloud.project_id(project)
    role = call.cloud.store.get(CUSTOM_ROLES, project, role_id)
    if role is None:
        raise ApiError(
            404, "notFound", f"The role named projects/{project}/roles/{role_id} was not found."
        )
    return project, role_id, role


def _etag() -> str:
    return base64.b64encode(secrets.token_bytes(8)).decode()


def _checked(given: Resource) -> Resource:
    """The fields of a role that a caller may set; 400 for a permission that a role can't have."""
    for permission in given.get("includedPermissions") or ():
        if permission in roles.NOT_IN_CUSTOM:
            raise invalid(f"Permission {permission} is not supported in custom roles.")
        if permission not in roles.known_permissions():
            raise invalid(f"Permission {permission} is not valid.")
    fields = {key: given[key] for key in FIELDS if given.get(key) is not None}
    if "includedPermissions" in fields:
        fields["includedPermissions"] = sorted(set(fields["includedPermissions"]))
    return fields


@handler("iam.projects.roles.create")
def create(call: Call) -> Resource:
    """Make a role; 409 for an id in use, 400 for the id of a deleted role."""
    project = _parent(call)
    body = call.body or {}
    role_id = body.get("roleId", "")
    name = f"projects/{project}/roles/{role_id}"
    if not ROLE_ID.fullmatch(role_id):
        raise invalid(f"The role_id {role_id!r} must match {ROLE_ID.pattern}")
    present = call.cloud.store.get(CUSTOM_ROLES, project, role_id)
    if present and present.get("deleted"):
        raise ApiError(
            400,
            "failedPrecondition",
            f"You can't create a role with role_id ({role_id}) where there is an existing role "
            "with that role_id in a deleted state.",
            code="FAILED_PRECONDITION",
        )
    if present:
        raise ApiError(
            409,
            "alreadyExists",
            f"A role named {role_id} in projects/{project} already exists.",
        )
    role = {"name": name, "etag": _etag(), "stage": "ALPHA", **_checked(body.get("role") or {})}
    call.cloud.store.put(CUSTOM_ROLES, project, role_id, role)
    return role


@handler("iam.projects.roles.get")
def get(call: Call) -> Resource:
    """One role, also a deleted one."""
    return _named(call)[2]


@handler("iam.projects.roles.patch")
def patch(call: Call) -> Resource:
    """Change a role: the fields of updateMask, or without a mask those in the body."""
    project, role_id, role = _named(call)
    body = call.body or {}
    _check_etag(role, body.get("etag"))
    if role.get("deleted"):
        raise ApiError(
            400,
            "failedPrecondition",
            f"You can't update role {role['name']}: it is deleted.",
            code="FAILED_PRECONDITION",
        )
    mask = [field for field in call.query.get("updateMask", "").split(",") if field]
    mask = ["includedPermissions" if field == "included_permissions" else field for field in mask]
    if any(field not in FIELDS for field in mask):
        raise invalid(f"updateMask: {', '.join(FIELDS)} can be changed, not {mask}")
    given = _checked({key: body[key] for key in (mask or FIELDS) if key in body})
    cleared = {key for key in mask if key not in given}
    changed = {key: value for key, value in role.items() if key not in cleared}
    changed |= {**given, "etag": _etag()}
    call.cloud.store.put(CUSTOM_ROLES, project, role_id, changed)
    return changed


def _check_etag(role: Resource, etag: str | None) -> None:
    if etag and not byte_values.same(etag, role["etag"]):
        raise ApiError(
            409,
            "aborted",
            "There were concurrent changes to the role. Please retry the whole "
            "read-modify-write with exponential backoff.",
            code="ABORTED",
        )


@handler("iam.projects.roles.delete")
def delete(call: Call) -> Resource:
    """Mark a role as deleted: it grants nothing any more."""
    project, role_id, role = _named(call)
    _check_etag(role, call.query.get("etag"))
    if role.get("deleted"):
        raise ApiError(
            400,
            "failedPrecondition",
            f"You can't delete role {role['name']}: it is deleted already.",
            code="FAILED_PRECONDITION",
        )
    changed = {**role, "deleted": True, "etag": _etag()}
    call.cloud.store.put(CUSTOM_ROLES, project, role_id, changed)
    return changed


@handler("iam.projects.roles.undelete")
def undelete(call: Call) -> Resource:
    """Restore a deleted role; the bindings that name it apply again."""
    project, role_id, role = _named(call)
    _check_etag(role, (call.body or {}).get("etag"))
    if not role.get("deleted"):
        raise ApiError(
            400,
            "failedPrecondition",
            f"You can't undelete role {role['name']}: it isn't deleted.",
            code="FAILED_PRECONDITION",
        )
    changed = {key: value for key, value in role.items() if key != "deleted"}
    changed["etag"] = _etag()
    call.cloud.store.put(CUSTOM_ROLES, project, role_id, changed)
    return changed


@handler("iam.projects.roles.list")
def list_(call: Call) -> Resource:
    """The project's roles; deleted ones with showDeleted, permissions with view=FULL."""
    roles = call.cloud.store.within(CUSTOM_ROLES, _parent(call))
    deleted_too = call.query.get("showDeleted") == "true"
    chosen = {
        role["name"]: role for role in roles.values() if deleted_too or not role.get("deleted")
    }
    return _page(call, chosen)


def _page(call: Call, chosen: dict[str, Resource]) -> Resource:
    page, token = query.page(chosen, sized(call), default=PAGE)
    hidden = () if call.query.get("view") == "FULL" else ("includedPermissions",)
    answer: Resource = {"roles": [_without(chosen[name], hidden) for name in page]} if page else {}
    return {**answer, **({"nextPageToken": token} if token else {})}


def _without(role: Resource, hidden: Iterable[str]) -> Resource:
    return {key: value for key, value in role.items() if key not in hidden}


def _predefined(role: roles.Role) -> Resource:
    return {
        "name": role.name,
        "title": role.title,
        "stage": "GA",
        "etag": "AA==",
        "includedPermissions": sorted(role.permissions),
    }


@handler("iam.roles.get")
def get_predefined(call: Call) -> Resource:
    """A predefined role, with the permissions that fakecloud knows."""
    role = roles.predefined().get(call.parameters["name"])
    if role is None:
        raise ApiError(404, "notFound", f"The role named {call.parameters['name']} was not found.")
    return _predefined(role)


@handler("iam.roles.list")
def list_predefined(call: Call) -> Resource:
    """The predefined roles that fakecloud knows."""
    return _page(call, {name: _predefined(role) for name, role in roles.predefined().items()})


@handler("iam.permissions.queryTestablePermissions")
def testable(call: Call) -> Resource:
    """The permissions that a custom role of the project may have, or may not."""
    body = call.body or {}
    match = TESTED.fullmatch(body.get("fullResourceName") or "")
    if not match:
        raise invalid(
            "fullResourceName: fakecloud knows //cloudresourcemanager.googleapis.com/projects/P, "
            f"not {body.get('fullResourceName')!r}"
        )
    call.cloud.project_id(match[1])
    size = {"maxResults": str(body.get("pageSize") or 100)}
    asked = {**size, "pageToken": body.get("pageToken") or ""}
    page, token = query.page(roles.known_permissions() | set(roles.NOT_IN_CUSTOM), asked)
    found = [{"name": name, "stage": "GA", **_support(name)} for name in page]
    return {"permissions": found, **({"nextPageToken": token} if token else {})}


def _support(permission: str) -> Resource:
    # SUPPORTED is the default value, and no default is in an answer.
    return {"customRolesSupportLevel": "NOT_SUPPORTED"} if permission in roles.NOT_IN_CUSTOM else {}
