"""Cloud Resource Manager v1: the project and its policy; and its Cloud Billing account.

https://cloud.google.com/resource-manager/reference/rest/v1/projects and
https://cloud.google.com/billing/docs/reference/rest/v1/projects/getBillingInfo.
"""

from muster_sandbox.fakecloud import identity, permissions, policies, query
from muster_sandbox.fakecloud.call import Call, handler, prepare
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services import iam_policy

CREATED = "2026-01-01T00:00:00.000Z"


@prepare
def grant_owner(cloud: Cloud) -> None:
    """Give a new project to the person with the owner's token."""
    name = f"projects/{cloud.settings.project}"
    if cloud.store.get(policies.KIND, "", name) is None:
        owners = {"role": "roles/owner", "members": [f"user:{identity.OWNER.email}"]}
        policies.put(cloud, name, [owners])


@handler("cloudresourcemanager.projects.get")
def get(call: Call) -> Resource:
    """The project, by id or number."""
    return _project(call, call.cloud.project_id(call.parameters["projectId"]))


def _project(call: Call, project: str) -> Resource:
    return {
        "projectId": project,
        "projectNumber": call.cloud.settings.project_number,
        "name": project,
        "lifecycleState": "ACTIVE",
        "createTime": CREATED,
    }


@handler("cloudresourcemanager.projects.list")
def list_(call: Call) -> Resource:
    """The projects that the caller may get: the user's, or none."""
    project = call.cloud.settings.project
    name = f"projects/{project}"
    if not permissions.allowed(call.cloud, call.identity, "resourcemanager.projects.get", name):
        return {}
    found = query.matching({project: _project(call, project)}, call.query)
    return {"projects": [_project(call, project)]} if project in found else {}


def _resource(call: Call) -> str:
    return f"projects/{call.cloud.project_id(call.parameters['resource'])}"


@handler("cloudresourcemanager.projects.getIamPolicy")
def get_iam_policy(call: Call) -> Resource:
    """The project's policy."""
    return iam_policy.get(call, _resource(call))


@handler("cloudresourcemanager.projects.setIamPolicy")
def set_iam_policy(call: Call) -> Resource:
    """Replace the project's policy."""
    return iam_policy.put(call, _resource(call))


@handler("cloudresourcemanager.projects.testIamPermissions")
def test_iam_permissions(call: Call) -> Resource:
    """The caller's permissions in the project."""
    return iam_policy.test(call, _resource(call))


@handler("cloudbilling.projects.getBillingInfo")
def billing_info(call: Call) -> Resource:
    """Which account pays."""
    project = call.cloud.project_id(call.parameters["name"].removeprefix("projects/"))
    return {
        "name": f"projects/{project}/billingInfo",
        "projectId": project,
        "billingAccountName": "billingAccounts/000000-000000-000000",
        "billingEnabled": True,
    }
