"""The metadata server that each machine finds at 169.254.169.254.

https://cloud.google.com/compute/docs/metadata/querying-metadata. The source address identifies the
machine: each gets its own metadata, identity and token, and can only write its own guest
attributes. Any other address gets 404.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster_sandbox.fakecloud import guest, identity
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.jwts import identity_token
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES
from muster_sandbox.fakecloud.services.compute.resources import Reference

ROOT = "/computeMetadata/v1"
WAIT_SECONDS = 3600.0
"""Maximum of a wait without timeout_sec; the real server's is not documented."""
FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def application(cloud: Cloud) -> Starlette:
    """The ASGI application."""

    async def answer(http: Request) -> Response:
        try:
            return await _answer(cloud, http)
        except RefusedError as error:
            return _text(f"{error}\n", error.status)
        finally:
            cloud.store.flush()

    return Starlette(
        routes=[Route("/{path:path}", answer, methods=["GET", "PUT", "POST", "DELETE"])]
    )


async def _answer(cloud: Cloud, http: Request) -> Response:
    machine = guest.find(cloud, http.client.host) if http.client else None
    if machine is None:
        raise RefusedError(404, "no machine has this address")
    target, instance = machine
    path = http.url.path
    if path == "/":
        return _text("computeMetadata/\n")
    # A forwarded request could be anybody's; the header keeps pages in a browser out.
    if http.headers.get("x-forwarded-for"):
        raise RefusedError(403, "X-Forwarded-For is not allowed")
    if http.headers.get("metadata-flavor") != "Google":
        raise RefusedError(403, "Missing Metadata-Flavor:Google header.")
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise RefusedError(404, "not found")
    parts = [part for part in path.removeprefix(ROOT).split("/") if part]
    if parts[:2] == ["instance", "guest-attributes"]:
        if not guest.enabled(instance):
            raise RefusedError(403, "Guest attributes endpoint access is disabled.")
        if http.method != "GET":
            return await _write(cloud, target, http, parts[2:])
    if http.method != "GET":
        raise RefusedError(405, "method not allowed")
    if parts[:2] == ["instance", "service-accounts"] and parts[3:] in (["token"], ["identity"]):
        return _credential(cloud, target, instance, parts, http.query_params)
    return await _read(cloud, target, http, parts)


def _text(content: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(content, status, {**FLAVOR, **(headers or {})}, "application/text")


def _json(content: Any, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(content, separators=(",", ":"))
    return Response(text, 200, {**FLAVOR, **(headers or {})}, "application/json")


async def _read(cloud: Cloud, target: Reference, http: Request, parts: list[str]) -> Response:
    """A value or directory, now or when it changes."""
    query = http.query_params
    if query.get("wait_for_change", "").lower() == "true":
        await _changed(cloud, target, parts, query)
    instance = target.find(cloud)
    if instance is None:
        raise RefusedError(404, "the machine is gone")
    try:
        value = guest.walk(guest.tree(cloud, target, instance), parts)
    except KeyError as error:
        raise RefusedError(404, "not found") from error
    headers = {"ETag": _etag(value)}
    directory = guest.is_directory(value)
    if directory and not http.url.path.endswith("/"):
        there = f"{http.url.path}/" + (f"?{http.url.query}" if http.url.query else "")
        return _text("", 301, {"Location": there})
    recursive = query.get("recursive", "").lower() == "true"
    if query.get("alt", "json" if directory and recursive else "text") == "json":
        if directory and not recursive:
            raise RefusedError(400, "alt=json needs recursive=true for a directory")
        return _json(guest.as_json(value), headers)
    listed = directory and not recursive
    return _text(guest.listing(value) if listed else guest.as_text(value), headers=headers)


def _etag(value: Any) -> str:
    text = json.dumps(guest.as_json(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def _changed(
    cloud: Cloud, target: Reference, parts: list[str], query: Mapping[str, str]
) -> None:
    """Return when the value at a path has changed, or after the timeout.

    With last_etag: changed since then, so a change between two waits is not missed.
    """
    known = query.get("last_etag") or _present(cloud, target, parts)
    try:
        limit = float(query.get("timeout_sec", WAIT_SECONDS))
    except ValueError:
        limit = 0.0
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    # A wait of 0 asks for a first etag: https://cloud.google.com/compute/docs/metadata/
    # querying-metadata#etag ("last_etag=0").
    while _present(cloud, target, parts) == known and loop.time() < end and not cloud.ended:
        changed = asyncio.Event()
        watchers = cloud.watchers.setdefault(target.link, [])
        watchers.append(changed.set)
        try:
            await asyncio.wait_for(changed.wait(), end - loop.time())
        except TimeoutError:
            watchers.remove(changed.set)


def _present(cloud: Cloud, target: Reference, parts: list[str]) -> str:
    instance = target.find(cloud)
    if instance is None:
        return "gone"
    try:
        return _etag(guest.walk(guest.tree(cloud, target, instance), parts))
    except KeyError:
        return "missing"


def _credential(
    cloud: Cloud,
    target: Reference,
    instance: Resource,
    parts: list[str],
    query: Mapping[str, str],
) -> Response:
    """A token or identity of the machine's service account."""
    _, _, name, what = parts
    accounts = instance.get("serviceAccounts", [])
    account = next((entry for entry in accounts if name in {"default", entry["email"]}), None)
    if account is None:
        raise RefusedError(404, "the machine has no such service account")
    if what == "token":
        asked = query.get("scopes", "")
        scopes = [scope for scope in asked.split(",") if scope] or account["scopes"]
        if not set(scopes) <= set(account["scopes"]):
            raise RefusedError(403, "the machine doesn't have these scopes")
        token = identity.issue(cloud, account["email"], scopes)
        lifetime = int(identity.LIFETIME_SECONDS)
        return _json({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"})
    audience = query.get("audience")
    if not audience:
        raise RefusedError(400, "non-empty audience parameter required")
    full = query.get("format", "standard") == "full"
    return _text(identity_token(cloud, target, instance, account["email"], audience, full=full))


async def _write(cloud: Cloud, target: Reference, http: Request, parts: list[str]) -> Response:
    """Set or remove a guest attribute, namespace/key."""
    if len(parts) != 2:
        raise RefusedError(400, "a guest attribute is namespace/key")
    scope, name = f"{target.scope}/{target.name}", "/".join(parts)
    if http.method == "DELETE":
        if cloud.store.get(GUEST_ATTRIBUTES, scope, name) is None:
            raise RefusedError(404, "not found")
        cloud.store.delete(GUEST_ATTRIBUTES, scope, name)
    else:
        value = (await http.body()).decode("utf-8", errors="replace")
        cloud.store.put(GUEST_ATTRIBUTES, scope, name, {"value": value})
    cloud.notify(target.link)
    return _text("")
