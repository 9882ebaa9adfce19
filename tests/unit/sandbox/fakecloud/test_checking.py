"""The method of a request, and what its description refuses."""

from typing import Any

import pytest

from muster_sandbox.fakecloud import checking, descriptions, routes
from muster_sandbox.fakecloud.api_errors import ApiError

DOCUMENTS = sorted({mount.document for mount in routes.MOUNTS})


@pytest.mark.parametrize(
    ("verb", "path", "method", "parameters"),
    [
        (
            "GET",
            "compute/v1/projects/p/global/images/family/debian-12",
            "compute.images.getFromFamily",
            {"project": "p", "family": "debian-12"},
        ),
        (
            "GET",
            "compute/beta/projects/p/global/images/debian-12",
            "compute.images.get",
            {"project": "p", "image": "debian-12"},
        ),
        (
            "POST",
            "compute/v1/projects/p/zones/z/instances/i/setMetadata",
            "compute.instances.setMetadata",
            {"project": "p", "zone": "z", "instance": "i"},
        ),
        (
            "POST",
            "secretmanager/v1/projects/p/secrets/s:addVersion",
            "secretmanager.projects.secrets.addVersion",
            {"parent": "projects/p/secrets/s", "projectsId": "p", "secretsId": "s"},
        ),
        (
            "GET",
            "secretmanager/v1/projects/p/secrets/s:getIamPolicy",
            "secretmanager.projects.secrets.getIamPolicy",
            {"resource": "projects/p/secrets/s", "projectsId": "p", "secretsId": "s"},
        ),
        (
            "GET",
            "storage/v1/b/bucket/o/bundles%2Fa%20b.tar",
            "storage.objects.get",
            {"bucket": "bucket", "object": "bundles/a b.tar"},
        ),
        ("POST", "upload/storage/v1/b/bucket/o", "storage.objects.insert", {"bucket": "bucket"}),
    ],
)
def test_a_path_has_its_method(verb, path, method, parameters):
    match = routes.find(verb, path)
    assert match.method.id == method
    assert match.parameters == parameters


def test_an_upload_is_told_by_its_path():
    assert routes.find("POST", "upload/storage/v1/b/bucket/o").media == "upload"
    assert routes.find("GET", "storage/v1/b/bucket/o/x").media == ""


def test_a_path_that_no_description_has_is_404_and_an_unknown_api_501():
    with pytest.raises(ApiError) as unknown:
        routes.find("GET", "compute/v1/projects/p/nonsense")
    assert unknown.value.status == 404
    with pytest.raises(ApiError, match="GET /dns/v1/projects") as unknown:
        routes.find("GET", "dns/v1/projects")
    assert unknown.value.status == 501


def body_of(method: str, body: Any, version: str = "v1") -> None:
    checking.check(descriptions.load(f"compute.{version}").methods[method], {}, body)


FINE: list[tuple[str, Any]] = [
    ("compute.routers.insert", {"name": "nat", "bgp": None}),
    ("compute.instances.insert", {"name": "a", "scheduling": {"nodeAffinities": [None]}}),
    ("compute.disks.insert", {"name": "a", "sizeGb": 10}),
    ("compute.disks.insert", {"name": "a", "sizeGb": "10"}),
    ("compute.instances.insert", {"name": "a", "labels": {"any": "thing"}}),
    ("compute.instances.setMetadata", {"fingerprint": "AAAA", "items": [{"key": "a-b_1"}]}),
    ("compute.networks.insert", {"name": "a", "mtu": "8896"}),
    ("compute.networks.patch", {"fingerprint": None, "mtu": 1500}),
    ("compute.networks.insert", {"routingConfig": {"deleteBgpAlwaysCompareMed": False}}),
    ("compute.routers.patch", {"nats": [{"name": "a", "initialNatIps": []}]}),
    ("compute.instances.insert", {"scheduling": {"provisioningModel": ""}}),
]


@pytest.mark.parametrize(("method", "body"), FINE)
def test_what_the_provider_sends_is_accepted(method, body):
    body_of(method, body)


WRONG: list[tuple[str, Any, str]] = [
    (
        "compute.instances.insert",
        {"name": "a", "disks": [{"boott": True}]},
        "Invalid JSON payload received. Unknown name \"boott\" at 'disks[0]': Cannot find field.",
    ),
    ("compute.instances.insert", {"nam": "a"}, 'Unknown name "nam": Cannot find field.'),
    ("compute.instances.insert", {"canIpForward": "yes"}, "at 'canIpForward' (TYPE_BOOL), \"yes\""),
    ("compute.instances.insert", {"canIpForward": 1}, "at 'canIpForward' (TYPE_BOOL), 1"),
    ("compute.disks.insert", {"sizeGb": "ten"}, "at 'sizeGb' (TYPE_INT64), \"ten\""),
    ("compute.disks.insert", {"sizeGb": True}, "at 'sizeGb' (TYPE_INT64), True"),
    ("compute.networks.insert", {"mtu": 2**31}, "at 'mtu' (TYPE_INT32)"),
    ("compute.networks.insert", {"mtu": 1.5}, "at 'mtu' (TYPE_INT32)"),
    ("compute.instances.insert", {"name": 7}, "at 'name' (TYPE_STRING), 7"),
    ("compute.instances.insert", {"disks": {}}, "at 'disks' (TYPE_ARRAY)"),
    ("compute.instances.insert", {"disks": [None]}, "at 'disks[0]'"),
    ("compute.instances.insert", [], "at 'resource'"),
    ("compute.instances.insert", {"labels": {"a": 1}}, "at 'labels.a' (TYPE_STRING), 1"),
    (
        "compute.instances.insert",
        {"name": "Not_A_Name"},
        "Invalid value for field 'resource.name': 'Not_A_Name'. Must be a match of regex",
    ),
    ("compute.instances.insert", {"keyRevocationActionType": "MAYBE"}, "Must be one of [KEY"),
    ("compute.routers.patch", {"nats": [{"initialNatIps": ""}]}, "at 'nats[0].initialNatIps'"),
    ("compute.routers.patch", {"initialNatIps": []}, 'Unknown name "initialNatIps"'),
    ("compute.instances.setMetadata", {"fingerprint": "&"}, "at 'fingerprint'"),
    ("compute.instances.start", {"surprise": 1}, "payload is not allowed"),
]


@pytest.mark.parametrize(("method", "body", "message"), WRONG)
def test_an_unknown_or_ill_typed_field_is_refused_by_name(method, body, message):
    with pytest.raises(ApiError) as refused:
        body_of(method, body)
    assert refused.value.status == 400
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"colour": "red"}, 'Unknown name "colour": Cannot bind query parameter.'),
        ({"zone": "z"}, 'Unknown name "zone"'),
        ({"maxResults": "many"}, "Invalid value at 'maxResults' (TYPE_UINT32), \"many\""),
        ({"prettyPrint": "perhaps"}, "TYPE_BOOL"),
        ({"alt": "xml"}, "Must be one of [json"),
    ],
)
def test_a_wrong_query_parameter_is_refused_by_name(query, message):
    method = descriptions.load("compute.v1").methods["compute.instances.list"]
    with pytest.raises(ApiError) as refused:
        checking.check(method, {name: [value] for name, value in query.items()}, None)
    assert refused.value.status == 400
    assert message in refused.value.message


def test_each_version_has_its_own_description():
    """Only beta has view=FULL, which the provider sends."""
    view = {"view": ["FULL"]}
    beta = descriptions.load("compute.beta").methods["compute.instances.get"]
    checking.check(beta, view, None)
    v1 = descriptions.load("compute.v1").methods["compute.instances.get"]
    with pytest.raises(ApiError, match='Unknown name "view"'):
        checking.check(v1, view, None)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_method_takes_the_parameters_of_its_whole_description(document: str):
    """alt, fields, key, prettyPrint, quotaUser and the others."""
    described = descriptions.load(document)
    given = {"alt": ["json"], "prettyPrint": ["false"], "key": ["k"], "quotaUser": ["me"]}
    given |= {"fields": ["kind"], "oauth_token": ["t"], "uploadType": ["media"]}
    for method in described.methods.values():
        checking.check(method, given, None)


@pytest.mark.parametrize("version", ["v1", "beta"])
def test_each_list_of_compute_takes_return_partial_success(version: str):
    """compute.v1 recommends it in its texts, and lists no parameter; compute.beta lists it."""
    given = {"returnPartialSuccess": ["True"]}
    methods = descriptions.load(f"compute.{version}").methods
    listed = descriptions.load("compute.beta").methods
    assert len(listed) > 900
    for name in methods.keys() & listed.keys():
        if "returnPartialSuccess" in listed[name].parameters:
            checking.check(methods[name], given, None)
        else:
            with pytest.raises(ApiError, match="returnPartialSuccess"):
                checking.check(methods[name], given, None)
    with pytest.raises(ApiError, match="returnPartialSuccess"):
        checking.check(methods["compute.zones.list"], {"returnPartialSuccess": ["perhaps"]}, None)


def test_a_path_parameter_must_fit_its_pattern():
    method = descriptions.load("compute.v1").methods["compute.instances.get"]
    with pytest.raises(ApiError, match="Invalid value for field 'instance': 'A B'"):
        checking.check_path(method, {"project": "p", "zone": "z", "instance": "A B"})
