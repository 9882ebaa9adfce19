"""Service accounts, keys and roles; and the token endpoint, which trusts only signatures."""

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fakecloud_api import CLOUD_PLATFORM, PROJECT, Api
from google.auth import crypt, jwt

from muster_sandbox.fakecloud import Cloud, Settings, handle, open_cloud
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.http import Request

ACCOUNTS = f"/iam/v1/{PROJECT}/serviceAccounts"
ROLES = f"/iam/v1/{PROJECT}/roles"
CRM = f"/cloudresourcemanager/v1/{PROJECT}"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def key_of(api: Api, account: Api) -> dict[str, Any]:
    """A new key as the file that clients read."""
    made = api.ok("POST", f"{ACCOUNTS}/{account.email}/keys", {})
    return dict(json.loads(base64.b64decode(made["privateKeyData"])))


def signed(key: dict[str, Any], cloud: Cloud, **claims: Any) -> str:
    """A JWT signed by the key; its claims are right except for `claims`."""
    now = int(cloud.clock.now())
    payload = {
        "iss": key["client_email"],
        "aud": key["token_uri"],
        "scope": CLOUD_PLATFORM,
        "iat": now,
        "exp": now + 3600,
        **claims,
    }
    payload = {name: value for name, value in payload.items() if value is not None}
    return str(jwt.encode(crypt.RSASigner.from_service_account_info(key), payload).decode())


def exchange(cloud: Cloud, **form: str) -> tuple[int, dict[str, Any]]:
    reply = handle(cloud, Request("POST", "/token", content=urlencode(form).encode()))
    return reply.status, json.loads(reply.content)


@pytest.fixture
def node(api: Api) -> Api:
    account = api.account("node-account")
    api.grant(CRM, "roles/viewer", account.member)
    return account


def test_a_signed_jwt_becomes_a_token_of_the_account(fake: Cloud, api: Api, node: Api):
    status, answer = exchange(fake, grant_type=GRANT, assertion=signed(key_of(api, node), fake))
    assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", 3599)
    caller = Api(fake, answer["access_token"])
    caller.ok("GET", f"{ACCOUNTS}/{node.email}")
    caller.refused("DELETE", f"{ACCOUNTS}/{node.email}")
    fake.clock.advance(3600)
    assert caller("GET", f"{ACCOUNTS}/{node.email}")[0] == 401


def test_the_scopes_are_those_of_the_jwt(fake: Cloud, api: Api, node: Api):
    scope = "https://www.googleapis.com/auth/devstorage.read_only"
    jwt_ = signed(key_of(api, node), fake, scope=scope)
    _, answer = exchange(fake, grant_type=GRANT, assertion=jwt_)
    caller = Api(fake, answer["access_token"])
    caller.ok("GET", "/storage/v1/b", project="demo-project")
    assert caller.refused("GET", f"{ACCOUNTS}/{node.email}")[1] == "insufficientPermissions"


@pytest.mark.parametrize(
    ("claims", "description"),
    [
        ({"iss": "nobody@demo-project.iam.gserviceaccount.com"}, "account not found"),
        ({"iat": 1, "exp": 3601}, "short-lived token"),
        ({"exp": 2**40}, "short-lived token"),
        ({"aud": "https://example.org/"}, "audience"),
        ({"scope": None}, "scope"),
        ({"target_audience": "x"}, "no identity tokens"),
    ],
)
def test_a_jwt_that_claims_what_is_not_so_is_refused(
    fake: Cloud, api: Api, node: Api, claims: dict[str, Any], description: str
):
    jwt_ = signed(key_of(api, node), fake, **claims)
    status, answer = exchange(fake, grant_type=GRANT, assertion=jwt_)
    assert (status, description in answer["error_description"]) == (400, True), answer


def test_a_signature_of_another_key_is_refused(fake: Cloud, api: Api, node: Api):
    key = key_of(api, node)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    forged = signed({**key, "private_key": other.decode()}, fake)
    status, answer = exchange(fake, grant_type=GRANT, assertion=forged)
    assert (status, answer["error_description"]) == (400, "Invalid JWT Signature.")
    head, _, signature = signed(key, fake).split(".")
    claims = {"iss": key["client_email"], "aud": key["token_uri"], "scope": CLOUD_PLATFORM}
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assertion = f"{head}.{changed}.{signature}"
    assert exchange(fake, grant_type=GRANT, assertion=assertion)[0] == 400
    for wrong in ("", "x", "a.b.c"):
        assert exchange(fake, grant_type=GRANT, assertion=wrong)[0] == 400


def test_another_grant_is_refused(fake: Cloud):
    status, answer = exchange(fake, grant_type="password")
    assert (status, answer["error"]) == (400, "unsupported_grant_type")


def test_a_deleted_key_signs_no_more(fake: Cloud, api: Api, node: Api):
    key = key_of(api, node)
    path = f"{ACCOUNTS}/{node.email}/keys/{key['private_key_id']}"
    assert "privateKeyData" not in api.ok("GET", path)
    assert len(api.ok("GET", f"{ACCOUNTS}/{node.email}/keys")["keys"]) == 1
    api.ok("DELETE", path)
    assert exchange(fake, grant_type=GRANT, assertion=signed(key, fake))[0] == 400
    assert api.refused("GET", path)[0] == 404


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"aud": "https://iam.googleapis.com/", "scope": None}, 200),
        ({"aud": None}, 200),
        ({"aud": None, "scope": "https://www.googleapis.com/auth/devstorage.read_only"}, 403),
        ({"aud": None, "scope": None}, 401),
        ({"iat": 1, "exp": 2}, 401),
    ],
)
def test_a_jwt_that_an_account_signed_is_a_token_itself(
    fake: Cloud, api: Api, node: Api, claims: dict[str, Any], status: int
):
    caller = Api(fake, signed(key_of(api, node), fake, **claims))
    assert caller("GET", f"{ACCOUNTS}/{node.email}")[0] == status


@pytest.mark.parametrize(
    ("account_id", "status"),
    [
        ("short", 400),
        ("a" * 31, 400),
        ("Capital", 400),
        ("ends-with-", 400),
        ("node-account", 409),
        ("another", 200),
    ],
)
def test_the_name_of_an_account(api: Api, node: Api, account_id: str, status: int):
    assert api("POST", ACCOUNTS, {"accountId": account_id})[0] == status


def test_an_account_is_found_by_email_and_unique_id(api: Api, node: Api):
    account = api.ok("GET", f"{ACCOUNTS}/{node.email}")
    for project in ("demo-project", "123456789012", "-"):
        path = f"/iam/v1/projects/{project}/serviceAccounts/{account['uniqueId']}"
        assert api.ok("GET", path) == account
    emails = [account["email"] for account in api.ok("GET", ACCOUNTS)["accounts"]]
    assert emails == ["123456789012-compute@developer.gserviceaccount.com", node.email]


def test_only_what_can_be_changed_of_an_account_is(api: Api, node: Api):
    path = f"{ACCOUNTS}/{node.email}"
    body = {"serviceAccount": {"description": "d"}, "updateMask": "description"}
    assert api.ok("PATCH", path, body)["displayName"] == "node-account"
    assert api.refused("PATCH", path, {**body, "updateMask": "email"})[0] == 400
    assert api.refused("PATCH", path, {"serviceAccount": {}})[0] == 400


@pytest.mark.parametrize(
    ("role_id", "role", "status", "message"),
    [
        ("a-b", {}, 400, "must match"),
        ("x1", {}, 400, "must match"),
        ("typo", {"includedPermissions": ["compute.instances.crate"]}, 400, "is not valid"),
        (
            "projects",
            {"includedPermissions": ["resourcemanager.projects.list"]},
            400,
            "not supported in custom roles",
        ),
        ("taken", {}, 409, "already exists"),
        ("gone", {}, 400, "in a deleted state"),
    ],
)
def test_a_role_that_can_not_be_is_refused(
    api: Api, role_id: str, role: dict[str, Any], status: int, message: str
):
    for name in ("taken", "gone"):
        api.ok("POST", ROLES, {"roleId": name, "role": {"title": name}})
    api.ok("DELETE", f"{ROLES}/gone")
    answered, _, said = api.refused("POST", ROLES, {"roleId": role_id, "role": role})
    assert (answered, message in said) == (status, True), said


def test_roles_are_listed_and_deleted_ones_on_demand(api: Api):
    body = {"title": "t", "includedPermissions": ["compute.disks.get"]}
    for name in ("one", "two"):
        api.ok("POST", ROLES, {"roleId": name, "role": body})
    api.ok("DELETE", f"{ROLES}/two")
    assert api.refused("DELETE", f"{ROLES}/two")[0] == 400
    assert api.refused("PATCH", f"{ROLES}/two", {"title": "x"})[0] == 400
    assert api.refused("POST", f"{ROLES}/one:undelete", {})[0] == 400
    (one,) = api.ok("GET", ROLES)["roles"]
    assert "includedPermissions" not in one
    full = api.ok("GET", ROLES, showDeleted="true", view="FULL")["roles"]
    assert [listed.get("deleted", False) for listed in full] == [False, True]
    assert full[0]["includedPermissions"] == ["compute.disks.get"]


def test_a_mask_and_an_etag_on_a_role(api: Api):
    body = {"roleId": "one", "role": {"title": "t", "description": "d"}}
    etag = api.ok("POST", ROLES, body)["etag"]
    path = f"{ROLES}/one"
    changed = api.ok("PATCH", path, {"title": "new", "etag": etag}, updateMask="title,description")
    assert (changed["title"], "description" in changed) == ("new", False)
    assert api.refused("PATCH", path, {"title": "x", "etag": etag})[0] == 409
    assert api.refused("PATCH", path, {"title": "x"}, updateMask="name")[0] == 400


def test_predefined_roles_can_be_read(api: Api):
    role = api.ok("GET", "/iam/v1/roles/compute.viewer")
    assert "compute.instances.get" in role["includedPermissions"]
    assert api.refused("GET", "/iam/v1/roles/compute.none")[0] == 404
    names = [role["name"] for role in api.ok("GET", "/iam/v1/roles")["roles"]]
    assert {"roles/owner", "roles/iap.tunnelResourceAccessor"} <= set(names)


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("GET", "/cloudresourcemanager/v1/projects/other", None),
        ("POST", "/cloudresourcemanager/v1/projects/other:getIamPolicy", {}),
        ("GET", "/cloudbilling/v1/projects/other/billingInfo", None),
        ("GET", "/secretmanager/v1/projects/other/secrets", None),
        ("GET", "/iam/v1/projects/other/serviceAccounts", None),
        ("GET", "/serviceusage/v1/projects/other/services", None),
        ("GET", "/storage/v1/b?project=other", None),
    ],
)
def test_the_project_of_others_is_not_open(api: Api, verb: str, path: str, body: Any):
    path, _, query = path.partition("?")
    status, answer = api(verb, path, body, **dict([query.split("=")] if query else []))
    assert (status, answer["error"]["status"]) == (403, "PERMISSION_DENIED")


def test_accounts_rights_keys_and_tokens_survive_a_restart(tmp_path: Path):
    first = open_cloud(Settings(), tmp_path, ManualClock())
    api = Api(first)
    node = api.account("node-account")
    api.grant(CRM, "roles/viewer", node.member)
    key = key_of(api, node)
    first.close()
    second = open_cloud(Settings(), tmp_path, ManualClock())
    Api(second, node.token).ok("GET", f"{ACCOUNTS}/{node.email}")
    _, answer = exchange(second, grant_type=GRANT, assertion=signed(key, second))
    Api(second, answer["access_token"]).ok("GET", f"{ACCOUNTS}/{node.email}")
    second.close()
    assert (first.failures, second.failures) == ([], [])
