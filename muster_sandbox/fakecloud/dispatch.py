"""Handles a request: finds the method, checks the call and runs its handler."""

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from muster_sandbox.fakecloud import (
    checking,
    identity,
    operations,
    permissions,
    query,
    routes,
    unset,
)
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, not_implemented
from muster_sandbox.fakecloud.backends import Backend
from muster_sandbox.fakecloud.call import HANDLERS, PLAIN, PREPARE, Call
from muster_sandbox.fakecloud.clock import Clock
from muster_sandbox.fakecloud.cloud import Cloud, Settings
from muster_sandbox.fakecloud.descriptions import Match, Method
from muster_sandbox.fakecloud.http import Deferred, Reply, Request, reply

log = logging.getLogger(__name__)


def open_cloud(
    settings: Settings | None = None,
    folder: Path | None = None,
    clock: Clock | None = None,
    backend: Callable[[Cloud], Backend] | None = None,
) -> Cloud:
    """Return a cloud that is ready for requests.

    Its state is in `folder`, if given: operations that were running continue.
    """
    cloud = Cloud(settings, folder, clock, backend)
    for prepare in PREPARE:
        prepare(cloud)
    operations.resume(cloud)
    cloud.store.flush()
    return cloud


def handle(cloud: Cloud, request: Request) -> Reply | Deferred:
    """Answer a request; a Deferred ends in a Reply or in JSON."""
    return cloud.middleware(partial(_answer, cloud), request)


def _answer(cloud: Cloud, request: Request) -> Reply | Deferred:
    came = cloud.clock.now()
    method = ""
    answer: Reply | Deferred
    try:
        plain = PLAIN.get((request.verb, request.path))
        if plain:
            return plain(cloud, request)
        match = routes.find(request.verb, request.path)
        method = match.method.id
        answer = _call(cloud, request, match)
    except ApiError as error:
        answer = reply(error.body(), error.status)
    except Exception as error:
        # Callers retry a 500 for 20 minutes (Pulumi's provider does), so a bug here is
        # answered as what it is to them: something that fakecloud can't do.
        log.exception("%s %s", request.verb, request.path)
        cloud.failures.append(f"{request.verb} {request.path}: {error!r}")
        answer = reply(not_implemented(f"{request.verb} {request.path} ({error!r})").body(), 501)
    finally:
        cloud.store.flush()
    if method:
        cloud.heard(method, came, answer.status if isinstance(answer, Reply) else 200)
    return answer


def _call(cloud: Cloud, request: Request, match: Match) -> Reply | Deferred:
    function = HANDLERS.get(match.method.id)
    if function is None:
        raise not_implemented(match.method.id)
    repeated = parse_qs(request.query, keep_blank_values=True)
    parameters = match.parameters
    call = Call(
        cloud=cloud,
        method=match.method.id,
        version=match.method.description.version,
        parameters=parameters,
        query={name: _last(match.method, name, values) for name, values in repeated.items()},
        repeated=repeated,
        headers=request.headers,
        identity=identity.identify(cloud, request.headers),
        content=request.content,
        media=match.media or ("download" if repeated.get("alt") == ["media"] else ""),
    )
    if request.content and match.media != "upload":
        call.body = _json(request.content)
    if cloud.settings.validate:
        checking.check_path(match.method, parameters)
        checking.check(match.method, repeated, call.body)
    call.body = unset.without(match.method, call.body)
    if "project" in parameters:
        parameters["project"] = cloud.project_id(parameters["project"])
    cloud.faults.refuse(call.method)
    cloud.rates.take(call.method, cloud.settings.calls_per_second, cloud.clock.now())
    permissions.check(call)
    answer = operations.repeated(call) or function(call)
    if isinstance(answer, dict):
        return reply(query.select(answer, call.query.get("fields")))
    return answer


def _last(method: Method, name: str, values: list[str]) -> str:
    """The last value of a query parameter; a boolean is true or false, as sent by gcloud True."""
    boolean = method.parameters.get(name, {}).get("type") == "boolean"
    return values[-1].lower() if boolean else values[-1]


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise invalid(f"Parse Error: {error}", "parseError") from error
