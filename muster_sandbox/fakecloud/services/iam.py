"""IAM: service accounts and their keys.

https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts. Custom roles are in
iam_roles.py. A deleted account stays in bindings as deleted:serviceAccount:...?uid=..., so a new
one of the same name has none of its permissions, as with Google.
"""

import base64
import json
import re
import secrets
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from muster_sandbox.fakecloud import identity, policies, query
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.call import Call, handler, prepare
from muster_sandbox.fakecloud.clock import utc_timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.resource_names import ACCOUNTS, account_email, default_account
from muster_sandbox.fakecloud.services import iam_policy
from muster_sandbox.fakecloud.services.serviceusage import sized

ACCOUNT_ID = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])")
ETAG = "MDEwMjE5MjA="
KEY_BITS = 2048
# https://cloud.google.com/iam/quotas#limits
KEYS_LIMIT = 10
FOREVER = "9999-12-31T23:59:59Z"
PAGE = 20


@prepare
def make_default_account(cloud: Cloud) -> None:
    """Create the default account of instances, which exists once Compute Engine is enabled."""
    email = default_account(cloud)
    if cloud.store.get(ACCOUNTS, cloud.settings.project, email) is None:
        _store(cloud, _account(cloud, email, {"displayName": "Compute Engine default account"}))


def _account(cloud: Cloud, email: str, given: Resource) -> Resource:
    project = cloud.settings.project
    unique = str(10**20 + secrets.randbelow(9 * 10**20))
    return {
        "name": f"projects/{project}/serviceAccounts/{email}",
        "projectId": project,
        "uniqueId": unique,
        "email": email,
        "etag": ETAG,
        "oauth2ClientId": unique,
        **{key: given[key] for key in ("displayName", "description") if given.get(key)},
    }


def _store(cloud: Cloud, account: Resource) -> None:
    cloud.store.put(ACCOUNTS, cloud.settings.project, account["email"], account)


def _existing(call: Call, parameter: str = "name") -> Resource:
    """The account in the path, by email or unique id, in the project or in "-"."""
    _, project, _, name, *_ = call.parameters[parameter].split("/")
    if project != "-":
        call.cloud.project_id(project)
    email = account_email(call.cloud, name)
    account = call.cloud.store.get(ACCOUNTS, call.cloud.settings.project, email)
    if account is None:
        raise ApiError(404, "notFound", f"Unknown service account: {name}")
    return account


@handler("iam.projects.serviceAccounts.create")
def create(call: Call) -> Resource:
    """Make an account; 409 if the name is taken."""
    project = call.cloud.project_id(call.parameters["name"].removeprefix("projects/"))
    body = call.body or {}
    account_id = body.get("accountId", "")
    if not 6 <= len(account_id) <= 30:
        raise invalid(f'The account ID "{account_id}" does not have a length between 6 and 30.')
    if not ACCOUNT_ID.fullmatch(account_id):
        raise invalid(f'The account ID "{account_id}" must match {ACCOUNT_ID.pattern}')
    email = f"{account_id}@{project}.iam.gserviceaccount.com"
    if call.cloud.store.get(ACCOUNTS, project, email) is not None:
        raise ApiError(
            409,
            "alreadyExists",
            f"Service account {account_id} already exists within project projects/{project}.",
        )
    account = _account(call.cloud, email, body.get("serviceAccount") or {})
    _store(call.cloud, account)
    return account


@handler("iam.projects.serviceAccounts.get")
def get(call: Call) -> Resource:
    """One account."""
    return _existing(call)


@handler("iam.projects.serviceAccounts.list")
def list_(call: Call) -> Resource:
    """The project's accounts."""
    project = call.cloud.project_id(call.parameters["name"].removeprefix("projects/"))
    accounts = call.cloud.store.within(ACCOUNTS, project)
    page, token = query.page(accounts, sized(call), default=PAGE)
    answer: Resource = {"accounts": [accounts[email] for email in page]}
    return {**answer, **({"nextPageToken": token} if token else {})}


@handler("iam.projects.serviceAccounts.patch")
def patch(call: Call) -> Resource:
    """Change the fields in updateMask: only display_name and description can be changed."""
    account = _existing(call)
    body = call.body or {}
    mask = [field.strip() for field in (body.get("updateMask") or "").split(",") if field.strip()]
    allowed = {
        "display_name": "displayName",
        "displayName": "displayName",
        "description": "description",
    }
    if not mask or any(field not in allowed for field in mask):
        raise invalid(f"updateMask: display_name and description can be changed, not {mask}")
    given = body.get("serviceAccount") or {}
    changed = {**account, **{allowed[field]: given.get(allowed[field], "") for field in mask}}
    changed = {key: value for key, value in changed.items() if value != ""}
    _store(call.cloud, changed)
    return changed


@handler("iam.projects.serviceAccounts.disable")
def disable(call: Call) -> Resource:
    """Refuse the account's tokens and keys from now on."""
    _store(call.cloud, {**_existing(call), "disabled": True})
    return {}


@handler("iam.projects.serviceAccounts.enable")
def enable(call: Call) -> Resource:
    """Accept the account's tokens and keys again."""
    account = _existing(call)
    _store(call.cloud, {key: value for key, value in account.items() if key != "disabled"})
    return {}


@handler("iam.projects.serviceAccounts.delete")
def delete(call: Call) -> Resource:
    """Remove the account, its keys and its policy; bindings keep a tombstone."""
    account = _existing(call)
    cloud, email = call.cloud, account["email"]
    cloud.store.delete(ACCOUNTS, cloud.settings.project, email)
    for key in list(cloud.store.within(identity.KEYS, email)):
        cloud.store.delete(identity.KEYS, email, key)
    policies.forget(cloud, account["name"])
    tombstone = f"deleted:serviceAccount:{email}?uid={account['uniqueId']}"
    policies.rename_member(cloud, f"serviceAccount:{email}", tombstone)
    return {}


@handler("iam.projects.serviceAccounts.getIamPolicy")
def get_iam_policy(call: Call) -> Resource:
    """Who may use the account."""
    return iam_policy.get(call, _existing(call, "resource")["name"])


@handler("iam.projects.serviceAccounts.setIamPolicy")
def set_iam_policy(call: Call) -> Resource:
    """Replace who may use the account."""
    return iam_policy.put(call, _existing(call, "resource")["name"])


@handler("iam.projects.serviceAccounts.testIamPermissions")
def test_iam_permissions(call: Call) -> Resource:
    """What the caller may do with the account."""
    return iam_policy.test(call, _existing(call, "resource")["name"])


def _key(call: Call) -> tuple[str, Resource]:
    email, key_id = _existing(call)["email"], call.parameters["name"].rpartition("/")[2]
    key = call.cloud.store.get(identity.KEYS, email, key_id)
    if key is None:
        raise ApiError(404, "notFound", f"Service account key {key_id} does not exist.")
    return email, key


def _public(key: Resource) -> Resource:
    return {name: value for name, value in key.items() if name != "publicKeyPem"}


@handler("iam.projects.serviceAccounts.keys.create")
def create_key(call: Call) -> Resource:
    """Make a key; only this answer has the private half, as the file that clients read."""
    account = _existing(call)
    email = account["email"]
    if len(call.cloud.store.within(identity.KEYS, email)) >= KEYS_LIMIT:
        raise ApiError(429, "rateLimitExceeded", "Maximum number of keys on account reached.")
    private = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    key_id = secrets.token_hex(20)
    key: Resource = {
        "name": f"{account['name']}/keys/{key_id}",
        "validAfterTime": utc_timestamp(call.cloud.clock.now()),
        "validBeforeTime": FOREVER,
        "keyAlgorithm": "KEY_ALG_RSA_2048",
        "keyOrigin": "GOOGLE_PROVIDED",
        "keyType": "USER_MANAGED",
        "publicKeyPem": private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode(),
    }
    call.cloud.store.put(identity.KEYS, email, key_id, key)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    file = json.dumps(_key_file(call, account, key_id, pem), indent=2)
    return {
        **_public(key),
        "privateKeyType": "TYPE_GOOGLE_CREDENTIALS_FILE",
        "privateKeyData": base64.b64encode(file.encode()).decode(),
    }


def _key_file(call: Call, account: Resource, key_id: str, pem: str) -> dict[str, Any]:
    here = f"http://{call.headers.get('host', '127.0.0.1')}"
    return {
        "type": "service_account",
        "project_id": account["projectId"],
        "private_key_id": key_id,
        "private_key": pem,
        "client_email": account["email"],
        "client_id": account["uniqueId"],
        "auth_uri": f"{here}/auth",
        "token_uri": f"{here}/token",
        "universe_domain": "googleapis.com",
    }


@handler("iam.projects.serviceAccounts.keys.get")
def get_key(call: Call) -> Resource:
    """One key's public data."""
    return _public(_key(call)[1])


@handler("iam.projects.serviceAccounts.keys.list")
def list_keys(call: Call) -> Resource:
    """The account's keys, without their private halves."""
    keys = call.cloud.store.within(identity.KEYS, _existing(call)["email"])
    return {"keys": [_public(key) for key in keys.values()]} if keys else {}


@handler("iam.projects.serviceAccounts.keys.delete")
def delete_key(call: Call) -> Resource:
    """Delete a key; tokens that were issued for it stay valid for their hour."""
    email, key = _key(call)
    call.cloud.store.delete(identity.KEYS, email, key["name"].rpartition("/")[2])
    return {}
