"""Calls as gcloud sends them, where Google's other clients send something else.

tests/engine/test_gcloud.py types the commands.
"""

from itertools import count
from typing import Any

import pytest
from fakecloud_api import PROJECT, Api
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud, byte_values

URL_SAFE = str.maketrans("+/", "-_")
FAMILY = "zones/-/imageFamilyViews/debian-12"
UPLOAD = "/upload/storage/v1/b/lab/o"
OBJECTS = "/storage/v1/b/lab/o"


def url_safe(text: str) -> str:
    assert set("+/") & set(text), "the same in both alphabets: it tests nothing"
    return text.translate(URL_SAFE)


def unlike(change: Any) -> str:
    """The first fingerprint or etag that differs in the two alphabets of base64."""
    return next(text for number in count() if set("+/") & set(text := change(str(number))))


# Links and families


def test_a_family_as_a_zone_sees_it(lab: Caller):
    for zone in ("-", "europe-west4-a"):
        path = f"zones/{zone}/imageFamilyViews/debian-12"
        view = lab.get(path, project="debian-cloud")
        assert view["image"]["name"].startswith("debian-12-bookworm-v")
    status, _, message = lab.refused("GET", FAMILY)
    assert (status, message) == (
        404,
        f"The resource 'projects/demo-project/{FAMILY}' was not found",
    )
    assert lab.refused("GET", "zones/moon-a/imageFamilyViews/debian-12")[0] == 400
    assert lab.refused("GET", "zones/-/instances")[0] == 400


@pytest.mark.parametrize(
    "image",
    [
        f"http://127.0.0.1:1/compute/v1/projects/debian-cloud/{FAMILY}",
        "projects/debian-cloud/zones/europe-west4-a/imageFamilyViews/debian-12",
        "projects/debian-cloud/global/images/family/debian-12",
    ],
)
def test_an_instance_boots_from_a_family_however_it_is_named(lab: Caller, image: str):
    disk = {"boot": True, "initializeParams": {"sourceImage": image}}
    lab.post(f"{ZONE}/instances", instance("vm", disks=[disk]))
    assert "/images/debian-12-bookworm-v" in lab.get(f"{ZONE}/disks/vm")["sourceImage"]


def test_who_may_use_a_family_is_asked_by_each_of_its_names(api: Api):
    """The permission is on the family's newest image, which has its own policy."""
    compute = f"/compute/v1/{PROJECT}"
    api.ok("POST", f"{compute}/{ZONE}/disks", {"name": "d", "sizeGb": "10"})
    body = {"name": "own-1", "family": "own", "sourceDisk": f"{ZONE}/disks/d"}
    api.ok("POST", f"{compute}/global/images", body)
    caller = api.account("maker1")
    role = {"includedPermissions": ["compute.disks.create"]}
    api.ok("POST", f"/iam/v1/{PROJECT}/roles", {"roleId": "disks", "role": role})
    api.grant(f"/cloudresourcemanager/v1/{PROJECT}", f"{PROJECT}/roles/disks", caller.member)
    links = ("global/images/family/own", "zones/-/imageFamilyViews/own")
    disks = [
        {"name": f"d{number}", "sourceImage": f"{PROJECT}/{link}"}
        for number, link in enumerate(links)
    ]
    for disk in disks:
        refused = caller.refused("POST", f"{compute}/{ZONE}/disks", disk)
        assert refused[2].endswith(f"permission for '{PROJECT}/global/images/own-1'")
    api.grant(f"{compute}/global/images/own-1", "roles/compute.imageUser", caller.member)
    for disk in disks:
        caller.ok("POST", f"{compute}/{ZONE}/disks", disk)


def bucket(api: Api) -> str:
    api.ok("POST", "/storage/v1/b", {"name": "lab"}, project="demo-project")
    return "lab"


@pytest.mark.parametrize(
    "project",
    ["centos-cloud", "cos-cloud", "debian-cloud", "suse-cloud", "ubuntu-os-cloud", "windows-cloud"],
)
def test_each_project_of_public_images_has_a_list(lab: Caller, project: str):
    """`gcloud compute images list` asks them all and warns of each that answers 404."""
    names = [image["name"] for image in lab.get("global/images", project=project).get("items", [])]
    assert bool(names) == (project in {"debian-cloud", "ubuntu-os-cloud"})


# Lists


def test_a_filter_by_a_word_as_gcloud_writes_it(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("web-1"))
    lab.post(f"{ZONE}/instances", instance("web"))
    lab.post(f"{ZONE}/instances", instance("webs"))

    def named(text: str) -> list[str]:
        return [item["name"] for item in lab.get(f"{ZONE}/instances", filter=text)["items"]]

    assert named(r'name eq ".*\bweb\b.*"') == ["web", "web-1"]
    assert named(r'name eq ".*\bweb\-1\b.*"') == ["web-1"]
    assert named(r'(name ne ".*\bweb\b.*") (status eq ".*\bRUNNING\b.*")') == ["webs"]


@pytest.mark.parametrize("collection", ["machineTypes", "diskTypes", "acceleratorTypes"])
def test_types_are_listed_in_a_zone_and_in_all(lab: Caller, collection: str):
    inside = lab.get(f"{ZONE}/{collection}")["items"]
    assert inside[0] == lab.get(f"{ZONE}/{collection}/{inside[0]['name']}")
    pages, token = [], ""
    while True:
        query = {"pageToken": token} if token else {}
        answer = lab.get(
            f"aggregated/{collection}", returnPartialSuccess="True", maxResults=100, **query
        )
        pages.append(answer["items"])
        token = answer.get("nextPageToken", "")
        if not token:
            break
    found = [item for page in pages for item in page.get(ZONE, {}).get(collection, [])]
    assert found == inside
    assert len({place for page in pages for place in page}) > 15


def test_accelerator_types_say_how_many_an_instance_may_have(lab: Caller):
    v100 = lab.get(f"{ZONE}/acceleratorTypes/nvidia-tesla-v100")
    assert (v100["description"], v100["maximumCardsPerInstance"]) == ("NVIDIA V100", 8)
    assert lab.refused("GET", f"{ZONE}/acceleratorTypes/none")[:2] == (404, "notFound")


def test_templates_are_listed_by_place(lab: Caller):
    properties = {**instance("x"), "machineType": "n1-standard-2"}
    del properties["name"]
    lab.post("global/instanceTemplates", {"name": "x", "properties": properties})
    listed = lab.get("aggregated/instanceTemplates", includeAllScopes="True")
    assert [one["name"] for one in listed["items"]["global"]["instanceTemplates"]] == ["x"]


# Booleans


def test_a_boolean_parameter_may_have_a_capital_letter(lab: Caller):
    """Python's spelling: the image is made though the instance runs."""
    lab.post(f"{ZONE}/instances", instance("vm"))
    body = {"name": "own", "sourceDisk": f"{ZONE}/disks/vm"}
    assert lab.refused("POST", "global/images", body, forceCreate="False")[0] == 400
    lab.post("global/images", body, forceCreate="True")
    assert lab.get("global/images/own")["status"] == "READY"


def test_a_service_account_is_taken_away_by_a_body_without_one(lab: Caller):
    account = {"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    lab.post(f"{ZONE}/instances", instance("vm", serviceAccounts=[account]))
    lab.post(f"{ZONE}/instances/vm/stop")
    lab.post(f"{ZONE}/instances/vm/setServiceAccount", {"scopes": []})
    assert "serviceAccounts" not in lab.get(f"{ZONE}/instances/vm")
    lab.post(f"{ZONE}/instances/vm/setServiceAccount", account)
    assert lab.get(f"{ZONE}/instances/vm")["serviceAccounts"][0]["scopes"] == account["scopes"]


# Bytes: gcloud sends fingerprints and etags in the URL-safe alphabet, whatever it got.


def test_bytes_have_more_than_one_spelling():
    assert byte_values.decoded("-_8=") == byte_values.decoded("+/8") == b"\xfb\xff"
    assert byte_values.same("-_8", "+/8=")
    assert not byte_values.same("-_7=", "+/8=")
    assert not byte_values.same("é", "+/8=")
    assert not byte_values.same(None, "+/8=")


def test_labels_are_changed_with_an_url_safe_fingerprint(lab: Caller):
    lab.post(f"{ZONE}/disks", {"name": "d", "sizeGb": "10"})
    path = f"{ZONE}/disks/d"

    def change(value: str) -> str:
        given = lab.get(path)["labelFingerprint"]
        body = {"labels": {"a": value}, "labelFingerprint": given}
        lab.post(f"{path}/setLabels", body)
        return str(lab.get(path)["labelFingerprint"])

    body = {"labels": {"a": "last"}, "labelFingerprint": url_safe(unlike(change))}
    lab.post(f"{path}/setLabels", body)
    assert lab.get(path)["labels"] == {"a": "last"}
    assert lab.refused("POST", f"{path}/setLabels", body)[:2] == (412, "conditionNotMet")


def test_metadata_and_tags_are_changed_with_an_url_safe_fingerprint(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("vm"))
    path = f"{ZONE}/instances/vm"
    for field, method, item in (
        ("metadata", "setMetadata", lambda value: {"key": "a", "value": value}),
        ("tags", "setTags", lambda value: f"t{value}"),
    ):

        def change(value: str, field: str = field, method: str = method, item: Any = item) -> str:
            given = lab.get(path)[field]["fingerprint"]
            lab.post(f"{path}/{method}", {"items": [item(value)], "fingerprint": given})
            return str(lab.get(path)[field]["fingerprint"])

        given = url_safe(unlike(change))
        lab.post(f"{path}/{method}", {"items": [item("last")], "fingerprint": given})
        assert lab.get(path)[field]["items"] == [item("last")]


def test_a_subnet_is_changed_with_an_url_safe_fingerprint(lab: Caller):
    path = f"{REGION}/subnetworks/lab"

    def change(value: str) -> str:
        body = {"description": value, "fingerprint": lab.get(path)["fingerprint"]}
        lab.ok("PATCH", path, body)
        return str(lab.get(path)["fingerprint"])

    given = url_safe(unlike(change))
    lab.ok("PATCH", path, {"description": "last", "fingerprint": given})
    assert lab.get(path)["description"] == "last"


def test_a_policy_is_written_with_an_url_safe_etag(api: Api):
    path = f"/cloudresourcemanager/v1/{PROJECT}"

    def change(_value: str) -> str:
        return str(api.write_policy(path, api.read_policy(path))["etag"])

    stale = unlike(change)
    policy = api.read_policy(path)
    api.write_policy(path, {**policy, "etag": url_safe(stale)})
    body = {"policy": {**policy, "etag": url_safe(stale)}}
    assert api.refused("POST", f"{path}:setIamPolicy", body)[0] == 409


def test_a_role_is_changed_with_an_url_safe_etag(api: Api):
    path = f"/iam/v1/{PROJECT}/roles/tester"
    body = {"roleId": "tester", "role": {"includedPermissions": ["compute.instances.get"]}}
    api.ok("POST", f"/iam/v1/{PROJECT}/roles", body)

    def change(value: str) -> str:
        return str(api.ok("PATCH", path, {"title": value}, updateMask="title")["etag"])

    given = {"title": "last", "etag": url_safe(unlike(change))}
    assert api.ok("PATCH", path, given, updateMask="title")["title"] == "last"


def test_what_is_no_base64_is_a_wrong_value(lab: Caller):
    lab.post(f"{ZONE}/disks", {"name": "d", "sizeGb": "10"})
    body = {"labels": {}, "labelFingerprint": "é"}
    assert lab.refused("POST", f"{ZONE}/disks/d/setLabels", body)[0] == 400


# Storage


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "content", [b"text\n", b"", b"ends in CR\r", b"--b\n\n", b"a\r\n\r\nb", b"\n--b", bytes(256)]
)
def test_the_lines_of_an_upload_end_in_one_way(api: Api, end: bytes, content: bytes):
    """gcloud's end in LF; the content is taken as it is, whatever ends its own lines."""
    bucket(api)
    body = end.join(
        [
            b"--=b=1",
            b"Content-Type: application/json",
            b"MIME-Version: 1.0",
            b"",
            b'{"name": "a/b", "contentType": "text/x-notes"}',
            b"--=b=1",
            b"Content-Type: text/plain",
            b"Content-Transfer-Encoding: binary",
            b"",
            content,
            b"--=b=1--",
            b"",
        ]
    )
    headers = {"content-type": 'multipart/related; boundary="=b=1"'}
    made = api.ok("POST", UPLOAD, body, uploadType="multipart", headers=headers)
    assert (made["name"], made["contentType"]) == ("a/b", "text/x-notes")
    api.ok("GET", f"{OBJECTS}/a%2Fb", alt="media")
    assert api.content == content


def put(api: Api, name: str, content: bytes = b"content", **query: Any) -> dict[str, Any]:
    return api.ok("POST", UPLOAD, content, uploadType="media", name=name, **query)


def test_an_object_is_copied_with_its_metadata_or_the_body_s(api: Api):
    bucket(api)
    first = put(api, "a", b"one")
    api.ok("PATCH", f"{OBJECTS}/a", {"metadata": {"x": "1"}, "contentType": "text/x-notes"})
    answer = api.ok("POST", f"{OBJECTS}/a/rewriteTo/b/lab/o/b%2Fc", {})
    assert (answer["done"], answer["objectSize"], answer["totalBytesRewritten"]) == (True, "3", "3")
    copy = answer["resource"]
    assert (copy["name"], copy["contentType"], copy["metadata"]) == (
        "b/c",
        "text/x-notes",
        {"x": "1"},
    )
    assert copy["md5Hash"] == first["md5Hash"]
    api.ok("GET", f"{OBJECTS}/b%2Fc", alt="media")
    assert api.content == b"one"
    body = {"contentType": "text/plain"}
    other = api.ok("POST", f"{OBJECTS}/a/rewriteTo/b/lab/o/d", body)["resource"]
    assert (other["contentType"], "metadata" in other) == ("text/plain", False)


def test_a_copy_has_preconditions_on_both_ends(api: Api, fake: Cloud):
    bucket(api)
    source = put(api, "a")["generation"]
    fake.clock.advance(1)
    target = put(api, "b")["generation"]
    path = f"{OBJECTS}/a/rewriteTo/b/lab/o/b"
    assert api("POST", path, {}, ifGenerationMatch=0)[0] == 412
    assert api("POST", path, {}, ifSourceGenerationMatch=target)[0] == 412
    assert api("POST", path, {}, sourceGeneration=target)[0] == 404
    assert api("POST", f"{OBJECTS}/none/rewriteTo/b/lab/o/b", {})[0] == 404
    assert api("POST", f"{OBJECTS}/a/rewriteTo/b/none/o/b", {})[0] == 404
    api.ok("POST", path, {}, ifGenerationMatch=target, ifSourceGenerationMatch=source)


def test_who_copies_needs_rights_on_both_ends(api: Api):
    bucket(api)
    api.ok("POST", "/storage/v1/b", {"name": "other"}, project="demo-project")
    put(api, "a")
    caller = api.account("copier")
    path = f"{OBJECTS}/a/rewriteTo/b/other/o/b"
    assert "storage.objects.get" in caller.refused("POST", path, {})[2]
    api.grant("/storage/v1/b/lab", "roles/storage.objectViewer", caller.member)
    assert "storage.objects.create" in caller.refused("POST", path, {})[2]
    api.grant("/storage/v1/b/other", "roles/storage.objectCreator", caller.member)
    caller.ok("POST", path, {})
    assert "storage.objects.delete" in caller.refused("POST", path, {})[2]


def test_the_layout_of_a_bucket(api: Api):
    bucket(api)
    layout = api.ok("GET", "/storage/v1/b/lab/storageLayout")
    assert (layout["location"], layout["locationType"]) == ("US", "multi-region")
    assert layout["hierarchicalNamespace"] == {"enabled": False}


def test_a_bucket_has_no_managed_folders(api: Api):
    bucket(api)
    assert api.ok("GET", "/storage/v1/b/lab/managedFolders") == {"kind": "storage#managedFolders"}


def test_a_call_to_storage_may_name_who_pays(api: Api):
    bucket(api)
    put(api, "a", userProject="demo-project", prettyPrint="True")
    assert api.ok("GET", f"{OBJECTS}/a", userProject="demo-project")["name"] == "a"


# Projects and roles


def test_a_caller_lists_the_projects_that_it_may_get(api: Api):
    path = "/cloudresourcemanager/v1/projects"
    (project,) = api.ok("GET", path, filter="lifecycleState:ACTIVE", pageSize=500)["projects"]
    assert project == api.ok("GET", f"{path}/demo-project")
    assert api.ok("GET", path, filter="lifecycleState:DELETE_REQUESTED") == {}
    assert api.account("nobody").ok("GET", path) == {}


@pytest.mark.parametrize(
    "host", ["cloudresourcemanager.googleapis.com", "127.0.0.1:1/cloudresourcemanager"]
)
def test_the_permissions_that_a_custom_role_may_have(api: Api, host: str):
    """gcloud names the project by its endpoint."""
    path = "/iam/v1/permissions:queryTestablePermissions"
    name = f"//{host}/{PROJECT}"
    found: dict[str, dict[str, Any]] = {}
    body = {"fullResourceName": name, "pageSize": 50}
    while True:
        answer = api.ok("POST", path, body)
        found |= {permission["name"]: permission for permission in answer["permissions"]}
        if "nextPageToken" not in answer:
            break
        body["pageToken"] = answer["nextPageToken"]
    assert found["compute.instances.get"] == {"name": "compute.instances.get", "stage": "GA"}
    assert found["resourcemanager.projects.list"]["customRolesSupportLevel"] == "NOT_SUPPORTED"
    assert len(found) > 100
    for other in ("", "//storage.googleapis.com/projects/_/buckets/b"):
        assert api.refused("POST", path, {"fullResourceName": other})[0] == 400
