"""Service Usage: which APIs are enabled in the project; a call to another one gets 403.

https://cloud.google.com/service-usage/docs/reference/rest. What fakecloud serves is enabled from
the start, so that a first `pulumi up` works; a test or a user can disable it.
"""

import re
from collections.abc import Sequence

from muster_sandbox.fakecloud import query
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, not_found
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.enabled_apis import CATALOG, KIND, enabled
from muster_sandbox.fakecloud.http import Resource

# https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchEnable
BATCH_LIMIT = 20
PAGE = 50


def _service(call: Call, name: str) -> Resource:
    parent = f"projects/{call.cloud.settings.project_number}"
    return {
        "name": f"{parent}/services/{name}",
        "parent": parent,
        "config": {"name": name, "title": CATALOG[name][0]},
        "state": "ENABLED" if enabled(call.cloud, name) else "DISABLED",
    }


def _project(call: Call, parent: str) -> None:
    match = re.fullmatch(r"projects/([^/]+)", parent)
    if not match:
        raise not_found(parent)
    call.cloud.project_id(match[1])


def _named(call: Call) -> str:
    """The service in the path of a call."""
    parent, _, name = call.parameters["name"].rpartition("/services/")
    _project(call, parent)
    return _known([name])[0]


def _known(names: Sequence[str]) -> Sequence[str]:
    unknown = [name for name in names if name not in CATALOG]
    if unknown:
        raise ApiError(
            403,
            "forbidden",
            f"Not found or permission denied for service(s): {', '.join(unknown)}.",
        )
    return names


def _set(call: Call, services: Sequence[str], state: str) -> None:
    for service in services:
        call.cloud.store.put(KIND, call.cloud.settings.project, service, {"state": state})


def _done(response: Resource) -> Resource:
    """A finished operation: there is nothing to wait for, so it has no id."""
    return {"name": "operations/noop.DONE_OPERATION", "done": True, "response": response}


@handler("serviceusage.services.get")
def get(call: Call) -> Resource:
    """One service and its state."""
    return _service(call, _named(call))


@handler("serviceusage.services.list")
def list_(call: Call) -> Resource:
    """All services of the catalog, or those in one state (filter=state:ENABLED)."""
    _project(call, call.parameters["parent"])
    wanted = call.query.get("filter", "")
    if wanted not in {"", "state:ENABLED", "state:DISABLED"}:
        raise invalid(f"Invalid filter: {wanted}")
    by_name = {name: _service(call, name) for name in CATALOG}
    chosen = [name for name in by_name if not wanted or by_name[name]["state"] == wanted[6:]]
    page, token = query.page(chosen, sized(call), default=PAGE)
    services = [by_name[name] for name in page]
    return {"services": services, **({"nextPageToken": token} if token else {})}


def sized(call: Call) -> dict[str, str]:
    """The query with pageSize, other services' name, as Compute Engine's maxResults."""
    size = call.query.get("pageSize")
    return {**call.query, **({"maxResults": size} if size else {})}


@handler("serviceusage.services.enable")
def enable(call: Call) -> Resource:
    """Enable one service."""
    name = _named(call)
    _set(call, [name], "ENABLED")
    return _done({"service": _service(call, name)})


@handler("serviceusage.services.disable")
def disable(call: Call) -> Resource:
    """Disable one service."""
    name = _named(call)
    _set(call, [name], "DISABLED")
    return _done({"service": _service(call, name)})


@handler("serviceusage.services.batchEnable")
def batch_enable(call: Call) -> Resource:
    """Enable up to 20 services."""
    _project(call, call.parameters["parent"])
    names = _known((call.body or {}).get("serviceIds") or [])
    if not 0 < len(names) <= BATCH_LIMIT:
        raise invalid(f"serviceIds: between 1 and {BATCH_LIMIT} services, not {len(names)}")
    _set(call, names, "ENABLED")
    return _done({"services": [_service(call, name) for name in names]})
