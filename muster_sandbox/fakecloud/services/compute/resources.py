"""What most kinds of resources of Compute Engine share: names, links, get, list, insert, delete."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster_sandbox.fakecloud import operations, query
from muster_sandbox.fakecloud import policies as iam_policies
from muster_sandbox.fakecloud.api_errors import already_exists, invalid, not_found
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.clock import timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Answer, Resource, json_reply
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.operations import LINK, Finish, begin, work
from muster_sandbox.fakecloud.places import REGIONS, region_of


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource: "networks", "network"; place is "global", "region" or "zone"."""

    collection: str
    singular: str
    place: str

    @property
    def store(self) -> str:
        """Its name in the store."""
        return f"compute.{self.collection}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A resource by its place: location is "global", "regions/R" or "zones/Z".

    With an `id` it is only this resource, not a later one of the same name.
    """

    project: str
    location: str
    collection: str
    name: str
    id: str = ""

    @property
    def path(self) -> str:
        """From projects/ on, as in messages."""
        return f"projects/{self.project}/{self.location}/{self.collection}/{self.name}"

    @property
    def link(self) -> str:
        """As in selfLink."""
        return LINK + self.path

    @property
    def scope(self) -> str:
        """The scope in the store."""
        return f"{self.project}/{self.location}"

    def find(self, cloud: Cloud) -> Resource | None:
        """The resource, or None."""
        resource = cloud.store.get(f"compute.{self.collection}", self.scope, self.name)
        return None if resource is not None and self.id and resource["id"] != self.id else resource


def location(call: Call) -> str:
    """The location of a call; 404 or 400 for an unknown zone or region."""
    zone, region = call.parameters.get("zone"), call.parameters.get("region")
    if zone is not None:
        if zone not in REGIONS.get(region_of(zone), ()):
            raise invalid(f"Invalid value for field 'zone': '{zone}'. Unknown zone.")
        return f"zones/{zone}"
    if region is not None:
        if region not in REGIONS:
            raise invalid(f"Invalid value for field 'region': '{region}'. Unknown region.")
        return f"regions/{region}"
    return "global"


def reference(call: Call, kind: Kind) -> Reference:
    """The resource in the path of a call."""
    return Reference(
        call.project, location(call), kind.collection, call.parameters[named(call, kind)]
    )


def named(call: Call, kind: Kind) -> str:
    """The path parameter that names the resource: `resource` in methods for IAM and labels."""
    return kind.singular if kind.singular in call.parameters else "resource"


def parse(call: Call, text: str, kind: Kind, field: str) -> Reference:
    """Read a full or partial link: https://.../projects/P/global/networks/N, global/networks/N, N.

    A bare name is in the call's zone or region. `field` is the source of the text, for the message.
    """
    parts = text.split("/")
    project = call.project
    if "projects" in parts:
        parts = parts[parts.index("projects") + 1 :]
        project = call.cloud.project_id(parts.pop(0))
    if len(parts) == 1:
        parts = [*_own_place(call, kind).split("/"), kind.collection, *parts]
    if len(parts) < 3 or parts[-2] != kind.collection:
        raise invalid(f"Invalid value for field '{field}': '{text}'. The URL is malformed.")
    return Reference(project, "/".join(parts[:-2]), kind.collection, parts[-1])


def _own_place(call: Call, kind: Kind) -> str:
    if kind.place == "global":
        return "global"
    zone = call.parameters.get("zone")
    return f"regions/{region_of(zone)}" if zone and kind.place == "region" else location(call)


def referenced(call: Call, text: str, kind: Kind, field: str) -> tuple[Reference, Resource]:
    """The resource that a field names, by name or numeric id; 400 if it doesn't exist."""
    resource = _resolved(call.cloud, parse(call, text, kind, field))
    if resource is None:
        raise invalid(
            f"Invalid value for field '{field}': '{text}'. "
            f"The referenced {kind.singular} resource cannot be found."
        )
    return resource


def existing(call: Call, kind: Kind) -> tuple[Reference, Resource]:
    """The resource in the path, by name or numeric id; 404 if it doesn't exist."""
    wanted = reference(call, kind)
    resource = _resolved(call.cloud, wanted)
    if resource is None:
        raise not_found(wanted.path)
    return resource


def _resolved(cloud: Cloud, wanted: Reference) -> tuple[Reference, Resource] | None:
    resource = wanted.find(cloud)
    if resource is not None:
        return wanted, resource
    if wanted.name.isdigit():
        for candidate in cloud.store.within(f"compute.{wanted.collection}", wanted.scope).values():
            if candidate["id"] == wanted.name:
                return replace(wanted, name=candidate["name"]), candidate
    return None


def without_nulls(value: Any) -> Any:
    """A body without its nulls: in JSON for protobuf they mean absent fields."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value if inner is not None]
    return value


def body(call: Call) -> Resource:
    """The body of a call without nulls; {} where there is none."""
    content: Resource = without_nulls(call.body or {})
    return content


def new(call: Call, kind: Kind, resource: Resource, where: str = "") -> tuple[Reference, Resource]:
    """A resource from a body, with the fields that Compute Engine adds; 409 if the name is taken.

    `where` is its location if that isn't the call's.
    """
    name = resource.get("name")
    if not name:
        raise invalid("Required field 'resource.name' not specified", "required")
    where = where or location(call)
    target = Reference(call.project, where, kind.collection, name)
    if target.find(call.cloud) is not None:
        raise already_exists(target.path)
    complete = {
        "kind": f"compute#{kind.singular}",
        **resource,
        "id": operations.new_id(),
        "creationTimestamp": timestamp(call.cloud.clock.now()),
        "selfLink": target.link,
    }
    if kind.place != "global":
        complete[kind.place] = f"{LINK}projects/{call.project}/{where}"
    return target, complete


def put(cloud: Cloud, target: Reference, resource: Resource) -> None:
    """Store a resource, new or changed."""
    cloud.usage.change(target.collection, target.find(cloud), resource)
    cloud.store.put(f"compute.{target.collection}", target.scope, target.name, resource)


def drop(cloud: Cloud, target: Reference) -> None:
    """Remove a resource if it still exists."""
    resource = target.find(cloud)
    if resource is not None:
        cloud.usage.change(target.collection, resource, None)
        cloud.store.delete(f"compute.{target.collection}", target.scope, target.name)
        iam_policies.forget(cloud, target.path)


def insert(call: Call, target: Reference, resource: Resource, **options: Any) -> Resource:
    """Store a new resource and answer the operation; a failed operation removes it."""
    put(call.cloud, target, resource)
    options = {"work": "insert", "arguments": as_arguments(target, resource), **options}
    return begin(call, "insert", target.location, target.path, resource["id"], **options)


def change(call: Call, target: Reference, resource: Resource, operation_type: str) -> Resource:
    """Store a changed resource and answer the operation."""
    put(call.cloud, target, resource)
    return begin(call, operation_type, target.location, target.path, resource["id"])


def from_link(link: str) -> Reference:
    """The resource with this selfLink, which is a link of this cloud."""
    project, *location, collection, name = link.partition("/projects/")[2].split("/")
    return Reference(project, "/".join(location), collection, name)


def as_arguments(target: Reference, resource: Resource) -> Resource:
    """A reference to this very resource as the arguments of work, which must be JSON."""
    return {
        "project": target.project,
        "location": target.location,
        "collection": target.collection,
        "name": target.name,
        "id": resource["id"],
    }


def from_arguments(arguments: Mapping[str, Any]) -> Reference:
    """The other way round."""
    names = ("project", "location", "collection", "name", "id")
    return Reference(**{name: arguments[name] for name in names})


def _take_back(cloud: Cloud, arguments: Resource) -> None:
    drop(cloud, from_arguments(arguments))


@work("insert", undo=_take_back)
def _insert(_cloud: Cloud, _arguments: Resource, finish: Finish) -> None:
    finish(None)


Users = Callable[[Cloud, Reference, Resource], str | None]
USERS: dict[str, Users] = {}
"""Collection -> function that names a user of a resource, which then can't be deleted."""


@work("delete")
def _delete(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    target = from_arguments(arguments)
    resource = target.find(cloud)
    users = USERS.get(target.collection)
    user = users(cloud, target, resource) if users and resource is not None else None
    if user is None:
        drop(cloud, target)
        finish(None)
        return
    singular = target.collection.removesuffix("s")
    finish(
        OperationError(
            "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
            f"The {singular} resource '{target.path}' is already being used by '{user}'",
            400,
            "BAD REQUEST",
        )
    )


def delete(call: Call, kind: Kind) -> Resource:
    """Delete what the path names, unless something uses it: then the operation fails."""
    target, resource = existing(call, kind)
    return begin(
        call,
        "delete",
        target.location,
        target.path,
        resource["id"],
        work="delete",
        arguments=as_arguments(target, resource),
    )


def get(call: Call, kind: Kind) -> Resource:
    """Answer the resource."""
    return existing(call, kind)[1]


def list_(call: Call, kind: Kind) -> Answer:
    """Answer one page of a project's resources in one place."""
    where = location(call)
    return listed(call, kind, f"{call.project}/{where}", f"{where}/{kind.collection}")


def listed(call: Call, kind: Kind, scope: str, place: str) -> Answer:
    """One page of a scope, filtered.

    It is put together from the resources' texts, which the store caches: 500 instances are 1.5 MB.
    """
    store = call.cloud.store
    resources = store.within(kind.store, scope)
    names, token = _ordered(call, resources)
    answer: Resource = {
        "kind": f"compute#{kind.singular}List",
        "id": f"projects/{call.project}/{place}",
        "selfLink": f"{LINK}projects/{call.project}/{place}",
    }
    if token:
        answer["nextPageToken"] = token
    if not names:
        return answer
    if "fields" in call.query:
        return {**answer, "items": [resources[name] for name in names]}
    items = ",".join([store.text(kind.store, scope, name) for name in names])
    return json_reply(f'{json.dumps(answer)[:-1]},"items":[{items}]}}'.encode())


def _ordered(call: Call, resources: Mapping[str, Resource]) -> tuple[list[str], str]:
    """One page of the resources that pass the filter, in the requested order."""
    names = query.matching(resources, call.query)
    order = call.query.get("orderBy", "name")
    if order == "name":
        return query.page(names, call.query)
    if order == "creationTimestamp desc":
        return query.newest_first(resources, names, call.query)
    raise invalid(
        f"Invalid value for field 'orderBy': '{order}'. It can be name or 'creationTimestamp desc'."
    )


def aggregated_list(call: Call, kind: Kind) -> Answer:
    """Answer one page of a project's resources in all places, grouped by place."""
    store = call.cloud.store
    prefix = f"{call.project}/"
    in_places = {
        f"{scope.removeprefix(prefix)} {name}": resources[name]
        for scope, resources in store.scopes(kind.store, prefix).items()
        for name in query.matching(resources, call.query)
    }
    keys, token = query.page(in_places, call.query)
    places: dict[str, list[str]] = {}
    for key in keys:
        place, _, name = key.partition(" ")
        places.setdefault(place, []).append(name)
    empty = (
        [] if call.query.get("pageToken") else [place for place in _places() if place not in places]
    )
    answer: Resource = {
        "kind": f"compute#{kind.singular}AggregatedList",
        "id": f"projects/{call.project}/aggregated/{kind.collection}",
        "selfLink": f"{LINK}projects/{call.project}/aggregated/{kind.collection}",
    }
    if token:
        answer["nextPageToken"] = token
    nothing = {place: {"warning": _no_results(place)} for place in empty}
    if "fields" in call.query:
        items = {
            place: {kind.collection: [in_places[f"{place} {name}"] for name in names]}
            for place, names in places.items()
        }
        return {**answer, "items": {**items, **nothing}}
    texts = [
        f'"{place}":{{"{kind.collection}":['
        + ",".join([store.text(kind.store, prefix + place, name) for name in names])
        + "]}"
        for place, names in places.items()
    ]
    texts += [f'"{place}":{json.dumps(warning)}' for place, warning in nothing.items()]
    return json_reply(f'{json.dumps(answer)[:-1]},"items":{{{",".join(texts)}}}}}'.encode())


def _no_results(place: str) -> Resource:
    return {
        "code": "NO_RESULTS_ON_PAGE",
        "message": f"There are no results for scope '{place}' on this page.",
        "data": [{"key": "scope", "value": place}],
    }


def _places() -> list[str]:
    return [f"zones/{zone}" for zones in REGIONS.values() for zone in zones]


def serve(kind: Kind, *methods: str) -> None:
    """Register the usual get, list, delete and aggregatedList for a kind."""
    forms = {"get": get, "list": list_, "delete": delete, "aggregatedList": aggregated_list}
    for method in methods:
        form = forms[method]
        handler(f"compute.{kind.collection}.{method}")(lambda call, form=form: form(call, kind))
