"""permissions.yml and roles.yml against the published API descriptions and the handlers."""

import re

import pytest

import muster_sandbox.fakecloud  # noqa: F401 (its import registers the handlers)
from muster_sandbox.fakecloud import descriptions, permissions, roles
from muster_sandbox.fakecloud.call import HANDLERS

DOCUMENTS = {
    "compute": "compute.v1",
    "storage": "storage.v1",
    "secretmanager": "secretmanager.v1",
    "iam": "iam.v1",
    "cloudresourcemanager": "cloudresourcemanager.v1",
    "cloudbilling": "cloudbilling.v1",
    "serviceusage": "serviceusage.v1",
    "iap": "iap.v1",
}
METHODS = sorted(permissions.needs())
# Variables that permissions.py computes.
COMPUTED = {"tunnel", "instance_account", "body", "query", "it"}


def description(method: str) -> descriptions.Method:
    document = descriptions.load(DOCUMENTS[method.partition(".")[0]])
    return document.methods[method]


def test_every_handler_has_its_permissions():
    assert sorted(set(HANDLERS) - set(METHODS)) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_the_table_is_one_of_googles(method: str):
    assert description(method).id == method
    assert re.fullmatch(r"https://cloud\.google\.com/[\w/.#-]+", permissions.page(method))


@pytest.mark.parametrize("method", METHODS)
def test_a_pattern_uses_what_the_method_has(method: str):
    parameters = {
        name
        for name, data in description(method).parameters.items()
        if data.get("location") == "path"
    } | {"zone"}  # regionInstances.bulkInsert: the zone that is chosen
    for need in permissions.needs()[method]:
        assert not need.see or need.see.startswith("https://cloud.google.com/")
        for pattern in (need.permission, need.on):
            for variable in permissions.VARIABLE.findall(pattern):
                names = {path.split(".")[0] for path in variable.split("|")}
                assert names & (parameters | COMPUTED), (method, pattern)


def test_a_permission_is_named_as_googles_are():
    wrong = [
        permission
        for permission in roles.known_permissions()
        if not re.fullmatch(r"[a-z]+\.[a-zA-Z]+\.[a-zA-Z]+", permission)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(roles.predefined()))
def test_a_role_holds_known_permissions_and_some(name: str):
    role = roles.predefined()[name]
    assert role.permissions
    assert role.permissions <= roles.known_permissions()


def test_basic_roles_contain_each_other():
    owner, editor, viewer = (roles.predefined()[name].permissions for name in roles.BASIC)
    assert viewer < editor < owner
    assert "secretmanager.versions.access" in owner - editor
    assert "resourcemanager.projects.setIamPolicy" in owner - editor
    assert "iam.serviceAccounts.actAs" in editor - viewer
    assert "compute.instances.get" in viewer
    assert not any(permission.startswith("storage.objects.") for permission in owner)
