"""Secret Manager: secrets, their versions and who may read them.

https://cloud.google.com/secret-manager/docs/reference/rest. Names in answers hold the project's
number, as Google's; calls may hold either. A payload is in the state and in the answer of `access`,
never in a log or an error.
"""

import base64
import re
import secrets
from typing import Any

from muster_sandbox.fakecloud import byte_values, policies, query
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.clock import utc_timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.crc32c import crc32c
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services import iam_policy
from muster_sandbox.fakecloud.services.serviceusage import sized

SECRETS = "secretmanager.secrets"
"""The store's kind of secrets; scope: project id, name: secret id."""
VERSIONS = "secretmanager.versions"
"""The store's kind of versions; scope: project id/secret id, name: number. `data` is base64."""
SECRET_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")
# https://cloud.google.com/secret-manager/quotas#content_limits
PAYLOAD_LIMIT_BYTES = 64 * 1024
PAGE = 25_000
CHANGEABLE = ("labels", "annotations", "versionAliases", "etag", "ttl", "expireTime", "topics")
UNSUPPORTED = ("ttl", "expireTime", "rotation", "topics", "versionDestroyTtl")
"""Fields that would make a secret change by itself: refused, since fakecloud doesn't do it."""


def _not_found(name: str) -> ApiError:
    return ApiError(404, "notFound", f"{name} not found.")


def _failed(message: str) -> ApiError:
    return ApiError(400, "failedPrecondition", message, code="FAILED_PRECONDITION")


def _etag() -> str:
    return f'"{secrets.token_hex(7)}"'


def _shown_name(cloud: Cloud, secret_id: str) -> str:
    return f"projects/{cloud.settings.project_number}/secrets/{secret_id}"


class _Named:
    """The secret, and the version if the path has one, that a call is about."""

    def __init__(self, call: Call, parameter: str) -> None:
        self.cloud = call.cloud
        parts = call.parameters[parameter].split("/")
        self.project = call.cloud.project_id(parts[1])
        self.secret_id = parts[3]
        self.name = _shown_name(call.cloud, self.secret_id)
        secret = call.cloud.store.get(SECRETS, self.project, self.secret_id)
        if secret is None:
            raise _not_found(f"Secret [{self.name}]")
        self.secret: Resource = secret
        self.version_id = self._number(parts[5]) if len(parts) > 5 else ""

    @property
    def scope(self) -> str:
        return f"{self.project}/{self.secret_id}"

    def _number(self, asked: str) -> str:
        if asked == "latest":
            # The latest enabled or not: Google's latest is the newest version, whatever its state.
            numbers = [int(number) for number in self.cloud.store.within(VERSIONS, self.scope)]
            if not numbers:
                raise self._no_version("latest")
            return str(max(numbers))
        aliases: dict[str, Any] = self.secret.get("versionAliases", {})
        return str(aliases.get(asked, asked))

    def _no_version(self, number: str) -> ApiError:
        return _not_found(f"Secret Version [{self.name}/versions/{number}]")

    def version(self) -> Resource:
        """The version as stored, payload included."""
        version = self.cloud.store.get(VERSIONS, self.scope, self.version_id)
        if version is None:
            raise self._no_version(self.version_id)
        return version

    def put_version(self, version: Resource) -> Resource:
        """Store a version with a new etag and return it as it is shown."""
        changed = {**version, "etag": _etag()}
        self.cloud.store.put(VERSIONS, self.scope, self.version_id, changed)
        return _shown(changed)

    def put_secret(self, secret: Resource) -> Resource:
        """Store the secret with a new etag and return it."""
        changed = {**secret, "etag": _etag()}
        self.cloud.store.put(SECRETS, self.project, self.secret_id, changed)
        return changed


def _shown(version: Resource) -> Resource:
    return {key: value for key, value in version.items() if key != "data"}


def _check_etag(present: Resource, etag: str | None) -> None:
    if etag and etag != present["etag"]:
        raise _failed(f"The etag provided {etag} does not match the expected {present['etag']}.")


def _check_secret(body: Resource) -> None:
    for field in UNSUPPORTED:
        if body.get(field):
            raise ApiError(501, "notImplemented", f"fakecloud has no secrets with {field}")


@handler("secretmanager.projects.secrets.create")
def create(call: Call) -> Resource:
    """Make a secret without a version; 409 if the id is taken."""
    project = call.cloud.project_id(call.parameters["parent"].removeprefix("projects/"))
    secret_id = call.query.get("secretId", "")
    if not SECRET_ID.fullmatch(secret_id):
        raise invalid("secretId: it must be 1 to 255 letters, digits, - and _")
    body = call.body or {}
    if not body.get("replication"):
        raise invalid("The field Secret.replication is required.")
    _check_secret(body)
    name = _shown_name(call.cloud, secret_id)
    if call.cloud.store.get(SECRETS, project, secret_id) is not None:
        raise ApiError(409, "alreadyExists", f"Secret [{name}] already exists.")
    secret = {
        **{key: value for key, value in body.items() if value not in (None, {}, [])},
        # An empty message counts: {"automatic": {}}.
        "replication": body["replication"],
        "name": name,
        "createTime": utc_timestamp(call.cloud.clock.now()),
        "etag": _etag(),
    }
    call.cloud.store.put(SECRETS, project, secret_id, secret)
    return secret


@handler("secretmanager.projects.secrets.get")
def get(call: Call) -> Resource:
    """A secret without its payload."""
    return _Named(call, "name").secret


@handler("secretmanager.projects.secrets.list")
def list_(call: Call) -> Resource:
    """The project's secrets; `filter` may be labels.KEY=VALUE or name:TEXT."""
    project = call.cloud.project_id(call.parameters["parent"].removeprefix("projects/"))
    listed = call.cloud.store.within(SECRETS, project)
    test = _filter(call.query.get("filter", ""))
    chosen = [secret_id for secret_id, secret in listed.items() if test(secret)]
    page, token = query.page(chosen, sized(call), default=PAGE)
    answer: Resource = {"secrets": [listed[secret_id] for secret_id in page]} if page else {}
    return {**answer, "totalSize": len(chosen), **({"nextPageToken": token} if token else {})}


def _filter(text: str) -> Any:
    """https://cloud.google.com/secret-manager/docs/filtering; only one term is implemented."""
    match = re.fullmatch(r'(labels\.([a-z0-9_-]+)|name)\s*([=:])\s*"?([^"\s()]*)"?', text)
    if not text:
        return lambda _secret: True
    if not match or (match[2] and match[3] != "="):
        raise invalid(f"fakecloud understands labels.KEY=VALUE and name:TEXT, not {text!r}")
    label, wanted = match[2], match[4]
    if label:
        return lambda secret: secret.get("labels", {}).get(label) == wanted
    return lambda secret: wanted in secret["name"].rpartition("/")[2]


@handler("secretmanager.projects.secrets.patch")
def patch(call: Call) -> Resource:
    """Change the fields in updateMask."""
    named = _Named(call, "name")
    body = call.body or {}
    _check_etag(named.secret, body.get("etag"))
    _check_secret(body)
    mask = [_camel(path.strip()) for path in call.query.get("updateMask", "").split(",") if path]
    wrong = [path for path in mask if path.partition(".")[0] not in CHANGEABLE]
    if not mask or wrong:
        raise invalid(f"updateMask: {', '.join(wrong) or 'it'} can't be changed or is missing")
    changed = dict(named.secret)
    for field in mask:
        outer, _, inner = field.partition(".")
        if inner:
            value = (body.get(outer) or {}).get(inner)
            merged = {**changed.get(outer, {}), inner: value}
            changed[outer] = {key: value for key, value in merged.items() if value is not None}
        elif body.get(outer):
            changed[outer] = body[outer]
        else:
            changed.pop(outer, None)
    return named.put_secret(changed)


def _camel(field: str) -> str:
    """A mask may also be spelt version_aliases."""
    first, *rest = field.split("_") if "." not in field else [field]
    return first + "".join(part.capitalize() for part in rest)


@handler("secretmanager.projects.secrets.delete")
def delete(call: Call) -> Resource:
    """Remove a secret, its versions and its policy."""
    named = _Named(call, "name")
    _check_etag(named.secret, call.query.get("etag"))
    for number in list(call.cloud.store.within(VERSIONS, named.scope)):
        call.cloud.store.delete(VERSIONS, named.scope, number)
    call.cloud.store.delete(SECRETS, named.project, named.secret_id)
    policies.forget(call.cloud, named.name)
    return {}


@handler("secretmanager.projects.secrets.addVersion")
def add_version(call: Call) -> Resource:
    """Add a version: enabled, and the latest from now on."""
    named = _Named(call, "parent")
    payload = (call.body or {}).get("payload") or {}
    data = _decoded(payload.get("data"))
    given = payload.get("dataCrc32c")
    if given is not None and int(given) != crc32c(data):
        raise invalid("The payload's checksum doesn't match dataCrc32c.")
    numbers = [int(number) for number in call.cloud.store.within(VERSIONS, named.scope)]
    named.version_id = str(max(numbers, default=0) + 1)
    version: Resource = {
        "name": f"{named.name}/versions/{named.version_id}",
        "createTime": utc_timestamp(call.cloud.clock.now()),
        "state": "ENABLED",
        # A version shows its replication only if that is automatic.
        "replicationStatus": {"automatic": {}},
        "clientSpecifiedPayloadChecksum": given is not None,
        "data": base64.b64encode(data).decode(),
    }
    if not version["clientSpecifiedPayloadChecksum"]:
        del version["clientSpecifiedPayloadChecksum"]
    return named.put_version(version)


def _decoded(data: Any) -> bytes:
    """The bytes of a payload; messages never quote it."""
    if not isinstance(data, str) or not data:
        raise invalid("The field SecretPayload.data is required.")
    try:
        decoded = byte_values.decoded(data)
    except ValueError as error:
        raise invalid("The field SecretPayload.data is not base64.") from error
    if len(decoded) > PAYLOAD_LIMIT_BYTES:
        raise invalid(f"The payload has more than {PAYLOAD_LIMIT_BYTES} bytes.")
    return decoded


@handler("secretmanager.projects.secrets.versions.get")
def get_version(call: Call) -> Resource:
    """A version without its payload; `latest` becomes its number in the answer's name."""
    return _shown(_Named(call, "name").version())


@handler("secretmanager.projects.secrets.versions.list")
def list_versions(call: Call) -> Resource:
    """A secret's versions, the newest first; `filter` may be state:ENABLED."""
    named = _Named(call, "parent")
    versions = call.cloud.store.within(VERSIONS, named.scope)
    wanted = call.query.get("filter", "")
    match = re.fullmatch(r"state\s*[:=]\s*(ENABLED|DISABLED|DESTROYED)", wanted)
    if wanted and not match:
        raise invalid(f"fakecloud understands state:ENABLED and the like, not {wanted!r}")
    # Keys that sort with the newest first, for paging.
    keys = {
        f"{10**9 - int(number):010}": version
        for number, version in versions.items()
        if not match or version["state"] == match[1]
    }
    page, token = query.page(keys, sized(call), default=PAGE)
    answer: Resource = {"versions": [_shown(keys[key]) for key in page]} if page else {}
    return {**answer, "totalSize": len(keys), **({"nextPageToken": token} if token else {})}


@handler("secretmanager.projects.secrets.versions.access")
def access(call: Call) -> Resource:
    """The payload; 400 if the version is disabled or destroyed."""
    version = _Named(call, "name").version()
    if version["state"] != "ENABLED":
        raise _failed(f"Secret Version [{version['name']}] is in {version['state']} state.")
    checksum = crc32c(base64.b64decode(version["data"]))
    payload = {"data": version["data"], "dataCrc32c": str(checksum)}
    return {"name": version["name"], "payload": payload}


def _change_state(call: Call, state: str) -> Resource:
    named = _Named(call, "name")
    version = named.version()
    _check_etag(version, (call.body or {}).get("etag"))
    if version["state"] == "DESTROYED":
        raise _failed(f"Secret Version [{version['name']}] is in DESTROYED state.")
    changed = {**version, "state": state}
    if state == "DESTROYED":
        del changed["data"]
        changed["destroyTime"] = utc_timestamp(call.cloud.clock.now())
    return named.put_version(changed)


@handler("secretmanager.projects.secrets.versions.enable")
def enable(call: Call) -> Resource:
    """Enable a version: it can be read again."""
    return _change_state(call, "ENABLED")


@handler("secretmanager.projects.secrets.versions.disable")
def disable(call: Call) -> Resource:
    """Disable a version: it can't be read until it is enabled."""
    return _change_state(call, "DISABLED")


@handler("secretmanager.projects.secrets.versions.destroy")
def destroy(call: Call) -> Resource:
    """Remove a version's payload for good; its number stays used."""
    return _change_state(call, "DESTROYED")


@handler("secretmanager.projects.secrets.getIamPolicy")
def get_iam_policy(call: Call) -> Resource:
    """The policy of a secret."""
    return iam_policy.get(call, _Named(call, "resource").name)


@handler("secretmanager.projects.secrets.setIamPolicy")
def set_iam_policy(call: Call) -> Resource:
    """Replace the policy of a secret."""
    return iam_policy.put(call, _Named(call, "resource").name)


@handler("secretmanager.projects.secrets.testIamPermissions")
def test_iam_permissions(call: Call) -> Resource:
    """The caller's permissions on a secret."""
    return iam_policy.test(call, _Named(call, "resource").name)
