"""Permissions: bindings at each level, conditions, custom roles, implied permissions."""

from typing import Any

import pytest
from fakecloud_api import CLOUD_PLATFORM, NUMBER, PROJECT, Api, role
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud

CRM = f"/cloudresourcemanager/v1/{PROJECT}"
COMPUTE = f"/compute/v1/{PROJECT}"
NODES = f"{PROJECT}/{ZONE}/instances/lab-"
DISKS = f"{PROJECT}/{ZONE}/disks/lab-"
SUBNET = f"{COMPUTE}/{REGION}/subnetworks/lab"


@pytest.fixture
def controller(lab: Caller, api: Api) -> Api:
    """An account without permissions, in a project with the subnet `lab`."""
    return api.account("controller")


def insert(caller: Api, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return caller("POST", f"{COMPUTE}/{ZONE}/instances", body)


def denied(answer: tuple[int, dict[str, Any]]) -> str:
    """The message of an answer that must be a 403."""
    status, body = answer
    assert (status, body["error"]["status"]) == (403, "PERMISSION_DENIED"), body
    return str(body["error"]["message"])


def test_without_a_role_nothing_is_allowed_and_the_message_is_googles(controller: Api):
    status, reason, message = controller.refused("GET", f"{COMPUTE}/{ZONE}/instances/lab-0")
    assert (status, reason) == (403, "forbidden")
    assert message == (
        f"Required 'compute.instances.get' permission for '{PROJECT}/{ZONE}/instances/lab-0'"
    )


def test_a_role_on_the_project_allows_and_its_removal_refuses(api: Api, controller: Api):
    api.grant(CRM, "roles/compute.viewer", controller.member)
    controller.ok("GET", f"{COMPUTE}/{ZONE}/instances")
    policy = api.read_policy(CRM)
    policy["bindings"] = [
        binding for binding in policy["bindings"] if "viewer" not in binding["role"]
    ]
    api.write_policy(CRM, policy)
    assert "compute.instances.list" in denied(controller("GET", f"{COMPUTE}/{ZONE}/instances"))


@pytest.mark.parametrize(
    ("basic", "allowed", "refused"),
    [
        ("viewer", ("GET", f"{COMPUTE}/global/networks"), ("DELETE", SUBNET)),
        ("editor", ("DELETE", SUBNET), ("POST", f"{CRM}:setIamPolicy", {"policy": {}})),
        (
            "owner",
            ("POST", f"{CRM}:testIamPermissions", {"permissions": ["compute.disks.get"]}),
            ("GET", "/storage/v1/b/of-others/o"),  # its policy no longer names a basic role
        ),
    ],
)
def test_a_basic_role(api: Api, controller: Api, basic: str, allowed: Any, refused: Any):
    api.grant(CRM, f"roles/{basic}", controller.member)
    api.ok("POST", "/storage/v1/b", {"name": "of-others"}, project="demo-project")
    api.ok("PUT", "/storage/v1/b/of-others/iam", {"bindings": []})
    controller.ok(*allowed)
    assert controller.refused(*refused)[0] == 403


def test_the_prefix_in_a_condition_says_which_nodes_may_be_made(api: Api, controller: Api):
    api.grant(
        CRM,
        role(api, "lab_nodes", "compute.instances.create", "compute.disks.create"),
        controller.member,
        condition=f'resource.name.startsWith("{NODES}") || resource.name.startsWith("{DISKS}")',
    )
    assert "compute.subnetworks.use" in denied(insert(controller, instance("lab-0")))
    # A subnet has no name in conditions, so its use is granted on the subnet itself.
    api.grant(SUBNET, "roles/compute.networkUser", controller.member)
    assert insert(controller, instance("lab-0"))[0] == 200
    message = denied(insert(controller, instance("web-0")))
    assert message == (
        f"Required 'compute.instances.create' permission for '{PROJECT}/{ZONE}/instances/web-0'"
    )


def test_a_condition_on_names_does_not_allow_lists(api: Api, controller: Api):
    api.grant(
        CRM,
        "roles/compute.instanceAdmin.v1",
        controller.member,
        condition=f'resource.name.startsWith("{NODES}")',
    )
    controller.refused("GET", f"{COMPUTE}/{ZONE}/instances")
    status, _ = controller("GET", f"{COMPUTE}/{ZONE}/instances/lab-7")
    assert status == 404


@pytest.mark.parametrize(
    ("extra", "permission", "on"),
    [
        ({"labels": {"a": "b"}}, "compute.instances.setLabels", f"{NODES}0"),
        (
            {"metadata": {"items": [{"key": "k", "value": "v"}]}},
            "compute.instances.setMetadata",
            f"{NODES}0",
        ),
        ({"tags": {"items": ["web"]}}, "compute.instances.setTags", f"{NODES}0"),
        (
            {
                "networkInterfaces": [
                    {
                        "subnetwork": f"{REGION}/subnetworks/lab",
                        "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}],
                    }
                ]
            },
            "compute.subnetworks.useExternalIp",
            f"{PROJECT}/{REGION}/subnetworks/lab",
        ),
        (
            {"disks": [{"boot": True, "source": f"{ZONE}/disks/own"}]},
            "compute.disks.use",
            f"{PROJECT}/{ZONE}/disks/own",
        ),
    ],
)
def test_an_insert_needs_what_its_parts_imply(
    api: Api, controller: Api, extra: dict[str, Any], permission: str, on: str
):
    base = ("compute.instances.create", "compute.disks.create", "compute.subnetworks.use")
    all_but = role(api, "all_but_one", *base)
    api.grant(CRM, all_but, controller.member)
    assert insert(controller, instance("lab-1"))[0] == 200
    body = instance("lab-0", **extra)
    assert denied(insert(controller, body)) == f"Required '{permission}' permission for '{on}'"
    body = {"includedPermissions": [*base, permission]}
    api.ok("PATCH", f"/iam/v1/{all_but}", body)
    if "own" in on:
        api.ok("POST", f"{COMPUTE}/{ZONE}/disks", {"name": "own", "sizeGb": "10"})
    status, answer = insert(controller, {**instance("lab-0"), **extra})
    assert status == 200, answer


def test_an_image_of_the_project_needs_its_use_and_a_public_one_does_not(api: Api, controller: Api):
    api.ok("POST", f"{COMPUTE}/{ZONE}/disks", {"name": "d", "sizeGb": "10"})
    api.ok("POST", f"{COMPUTE}/global/images", {"name": "lab-1", "sourceDisk": f"{ZONE}/disks/d"})
    base = ("compute.instances.create", "compute.disks.create", "compute.subnetworks.use")
    api.grant(CRM, role(api, "makers", *base), controller.member)
    assert insert(controller, instance("lab-0"))[0] == 200
    body = instance("lab-1")
    body["disks"][0]["initializeParams"]["sourceImage"] = f"{PROJECT}/global/images/lab-1"
    assert "compute.images.useReadOnly" in denied(insert(controller, body))
    api.grant(f"{COMPUTE}/global/images/lab-1", "roles/compute.imageUser", controller.member)
    assert insert(controller, body)[0] == 200


def test_a_family_is_its_newest_image(api: Api, controller: Api):
    api.ok("POST", f"{COMPUTE}/{ZONE}/disks", {"name": "d", "sizeGb": "10"})
    body = {"name": "lab-1", "family": "fam", "sourceDisk": f"{ZONE}/disks/d"}
    api.ok("POST", f"{COMPUTE}/global/images", body)
    base = ("compute.instances.create", "compute.disks.create", "compute.subnetworks.use")
    api.grant(CRM, role(api, "makers", *base), controller.member)
    body = instance("lab-1")
    source = f"{PROJECT}/global/images/family/fam"
    body["disks"][0]["initializeParams"]["sourceImage"] = source
    message = denied(insert(controller, body))
    assert message.endswith(f"permission for '{PROJECT}/global/images/lab-1'")
    api.grant(f"{COMPUTE}/global/images/lab-1", "roles/compute.imageUser", controller.member)
    assert insert(controller, body)[0] == 200


def test_the_owner_needs_an_account_that_is_there(lab: Caller, api: Api):
    account = {"email": "gone@demo-project.iam.gserviceaccount.com", "scopes": [CLOUD_PLATFORM]}
    status, answer = insert(api, instance("lab-0", serviceAccounts=[account]))
    assert (status, "'serviceAccount' was not found" in answer["error"]["message"]) == (400, True)


def test_to_run_a_machine_as_an_account_is_to_act_as_it(api: Api, controller: Api):
    api.grant(CRM, "roles/compute.instanceAdmin.v1", controller.member)
    node = api.account("node-account")
    body = instance("lab-0", serviceAccounts=[{"email": node.email, "scopes": [CLOUD_PLATFORM]}])
    message = denied(insert(controller, body))
    assert message.startswith(f"The user does not have access to service account '{node.email}'")
    own = f"/iam/v1/{PROJECT}/serviceAccounts/{node.email}"
    api.grant(own, "roles/iam.serviceAccountUser", controller.member)
    assert insert(controller, body)[0] == 200
    other = api.account("other-account")
    body = instance("lab-1", serviceAccounts=[{"email": other.email, "scopes": [CLOUD_PLATFORM]}])
    assert other.email in denied(insert(controller, body))


def test_metadata_of_a_machine_needs_its_account_too(api: Api, controller: Api):
    node = api.account("node-account")
    account = {"email": node.email, "scopes": [CLOUD_PLATFORM]}
    assert insert(api, instance("lab-0", serviceAccounts=[account]))[0] == 200
    api.grant(CRM, "roles/compute.instanceAdmin.v1", controller.member)
    path = f"{COMPUTE}/{ZONE}/instances/lab-0"
    fingerprint = api.ok("GET", path)["metadata"]["fingerprint"]
    body = {"fingerprint": fingerprint, "items": []}
    assert node.email in denied(controller("POST", f"{path}/setMetadata", body))
    own = f"/iam/v1/{PROJECT}/serviceAccounts/{node.email}"
    api.grant(own, "roles/iam.serviceAccountUser", controller.member)
    controller.ok("POST", f"{path}/setMetadata", body)


def test_a_template_lends_no_rights(api: Api, controller: Api):
    node = api.account("node-account")
    properties = instance("")
    del properties["name"]
    properties["machineType"] = "n1-standard-2"
    properties["networkInterfaces"][0]["subnetwork"] = f"{PROJECT}/{REGION}/subnetworks/lab"
    properties["serviceAccounts"] = [{"email": node.email, "scopes": [CLOUD_PLATFORM]}]
    template = {"name": "lab-debug", "properties": properties}
    api.ok("POST", f"{COMPUTE}/global/instanceTemplates", template)
    reference = f"{PROJECT}/global/instanceTemplates/lab-debug"
    body = {"name": "lab-0"}
    base = ("compute.instances.create", "compute.disks.create", "compute.subnetworks.use")
    custom = role(api, "makers", *base, "compute.instances.setServiceAccount")
    api.grant(CRM, custom, controller.member)

    def make() -> tuple[int, dict[str, Any]]:
        path = f"{COMPUTE}/{ZONE}/instances"
        return controller("POST", path, body, sourceInstanceTemplate=reference)

    def bulk(*names: str) -> tuple[int, dict[str, Any]]:
        many = {
            "count": len(names),
            "sourceInstanceTemplate": reference,
            "perInstanceProperties": {name: {} for name in names},
        }
        return controller("POST", f"{COMPUTE}/{ZONE}/instances/bulkInsert", many)

    assert node.email in denied(make())
    own = f"/iam/v1/{PROJECT}/serviceAccounts/{node.email}"
    api.grant(own, "roles/iam.serviceAccountUser", controller.member)
    assert "compute.instanceTemplates.useReadOnly" in denied(make())
    assert "compute.instanceTemplates.useReadOnly" in denied(bulk("lab-1"))
    use = role(api, "users", "compute.instanceTemplates.useReadOnly")
    api.grant(f"{COMPUTE}/global/instanceTemplates/lab-debug", use, controller.member)
    assert make()[0] == 200
    assert bulk("lab-1", "lab-2")[0] == 200


def test_each_name_of_a_bulk_insert_is_looked_at(api: Api, controller: Api):
    condition = f'resource.name.startsWith("{NODES}") || resource.name.startsWith("{DISKS}")'
    custom = role(api, "lab_nodes", "compute.instances.create", "compute.disks.create")
    api.grant(CRM, custom, controller.member, condition=condition)
    api.grant(SUBNET, "roles/compute.networkUser", controller.member)
    properties = instance("")
    del properties["name"]
    properties["machineType"] = "n1-standard-2"

    def bulk(*names: str) -> tuple[int, dict[str, Any]]:
        body = {
            "count": len(names),
            "instanceProperties": properties,
            "perInstanceProperties": {name: {} for name in names},
        }
        return controller("POST", f"{COMPUTE}/{ZONE}/instances/bulkInsert", body)

    assert "instances/web-0" in denied(bulk("lab-0", "web-0"))
    assert bulk("lab-0", "lab-1")[0] == 200


def test_a_secret_is_read_by_whom_it_is_granted_to(api: Api, controller: Api):
    for name in ("lab-munge", "lab-db"):
        body = {"replication": {"automatic": {}}}
        api.ok("POST", f"/secretmanager/v1/{PROJECT}/secrets", body, secretId=name)
        path = f"/secretmanager/v1/{PROJECT}/secrets/{name}:addVersion"
        api.ok("POST", path, {"payload": {"data": "c2VjcmV0"}})
    munge = f"/secretmanager/v1/{PROJECT}/secrets/lab-munge"
    api.grant(munge, "roles/secretmanager.secretAccessor", controller.member)
    controller.ok("GET", f"{munge}/versions/latest:access")
    controller.ok("GET", f"/secretmanager/v1/{NUMBER}/secrets/lab-munge/versions/1:access")
    controller.refused("GET", munge)
    status, reason, message = controller.refused(
        "GET", f"/secretmanager/v1/{PROJECT}/secrets/lab-db/versions/1:access"
    )
    assert (status, reason) == (403, "forbidden")
    assert message.startswith("Permission 'secretmanager.versions.access' denied for resource")


def test_names_of_secrets_in_conditions_hold_the_projects_number(api: Api, controller: Api):
    body = {"replication": {"automatic": {}}}
    api.ok("POST", f"/secretmanager/v1/{PROJECT}/secrets", body, secretId="lab-munge")
    for project, allowed in ((PROJECT, False), (NUMBER, True)):
        api.grant(
            CRM,
            "roles/secretmanager.viewer",
            controller.member,
            condition=f'resource.name.startsWith("{project}/secrets/lab-")',
        )
        status, _ = controller("GET", f"/secretmanager/v1/{PROJECT}/secrets/lab-munge")
        assert (status == 200) is allowed


def test_objects_are_read_by_prefix(api: Api, controller: Api):
    bucket = {"name": "lab", "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    api.ok("POST", "/storage/v1/b", bucket, project="demo-project")
    upload = "/upload/storage/v1/b/lab/o"
    for name in ("bundle/1", "other"):
        api.ok("POST", upload, b"content", uploadType="media", name=name)
    api.grant(
        "/storage/v1/b/lab",
        "roles/storage.objectViewer",
        controller.member,
        condition='resource.name.startsWith("projects/_/buckets/lab/objects/bundle/")',
    )
    controller.ok("GET", "/storage/v1/b/lab/o/bundle%2F1", alt="media")
    assert controller.content == b"content"
    status, _, message = controller.refused("GET", "/storage/v1/b/lab/o/other", alt="media")
    assert status == 403
    assert message.startswith(f"{controller.email} does not have storage.objects.get access")
    # A missing object is 404 only for those who may list.
    assert controller.refused("GET", "/storage/v1/b/lab/o/bundle%2F2")[0] == 403
    assert controller.refused("GET", "/storage/v1/b/lab/o")[0] == 403


@pytest.mark.parametrize(
    ("basic", "reads", "writes"), [("viewer", True, False), ("editor", True, True)]
)
def test_basic_roles_reach_objects_through_the_buckets_first_policy(
    api: Api, controller: Api, basic: str, reads: bool, writes: bool
):
    api.ok("POST", "/storage/v1/b", {"name": "lab"}, project="demo-project")
    upload = "/upload/storage/v1/b/lab/o"
    api.ok("POST", upload, b"one", uploadType="media", name="a")
    api.grant(CRM, f"roles/{basic}", controller.member)
    read, _ = controller("GET", "/storage/v1/b/lab/o/a", alt="media")
    write, _ = controller("POST", upload, b"two", uploadType="media", name="b")
    assert (read == 200, write == 200) == (reads, writes)
    api.ok("PUT", "/storage/v1/b/lab/iam", {"bindings": []})
    assert controller("GET", "/storage/v1/b/lab/o/a", alt="media")[0] == 403


def test_who_may_create_objects_may_not_replace_them(api: Api, controller: Api):
    api.ok("POST", "/storage/v1/b", {"name": "lab"}, project="demo-project")
    api.grant("/storage/v1/b/lab", "roles/storage.objectCreator", controller.member)
    upload = "/upload/storage/v1/b/lab/o"
    controller.ok("POST", upload, b"one", uploadType="media", name="a")
    message = controller.refused("POST", upload, b"two", uploadType="media", name="a")[2]
    assert "storage.objects.delete" in message
    api.grant("/storage/v1/b/lab", "roles/storage.objectUser", controller.member)
    controller.ok("POST", upload, b"two", uploadType="media", name="a")


def test_a_tunnels_policy_is_its_own(api: Api, controller: Api):
    tunnel = f"/iap/v1/{PROJECT}/iap_tunnel/{ZONE}/instances/lab-login-0"
    api.grant(tunnel, "roles/iap.tunnelResourceAccessor", "group:ml@example.org")
    assert api.read_policy(tunnel)["bindings"][0]["members"] == ["group:ml@example.org"]
    status, _, message = controller.refused("POST", f"{tunnel}:getIamPolicy", {})
    assert status == 403
    assert "iap.tunnelInstances.getIamPolicy" in message
    api.grant(f"/iap/v1/{PROJECT}/iap_tunnel/{ZONE}", "roles/iap.admin", controller.member)
    controller.ok("POST", f"{tunnel}:getIamPolicy", {})


def test_what_a_caller_may_can_be_asked(api: Api, controller: Api):
    asked = ["compute.instances.get", "compute.instances.delete"]
    api.grant(CRM, "roles/compute.viewer", controller.member)
    answer = controller.ok("POST", f"{CRM}:testIamPermissions", {"permissions": asked})
    assert answer == {"permissions": ["compute.instances.get"]}
    assert api.ok("POST", f"{CRM}:testIamPermissions", {"permissions": asked}) == {
        "permissions": asked
    }


def test_a_deleted_custom_role_grants_nothing_until_it_is_back(api: Api, controller: Api):
    custom = role(api, "readers", "compute.instances.list")
    api.grant(CRM, custom, controller.member)
    controller.ok("GET", f"{COMPUTE}/{ZONE}/instances")
    api.ok("DELETE", f"/iam/v1/{custom}")
    controller.refused("GET", f"{COMPUTE}/{ZONE}/instances")
    api.ok("POST", f"/iam/v1/{custom}:undelete", {})
    controller.ok("GET", f"{COMPUTE}/{ZONE}/instances")


def test_a_binding_to_a_deleted_role_may_stay_and_no_new_one_come(api: Api, controller: Api):
    custom = role(api, "readers", "compute.instances.list")
    api.grant(CRM, custom, controller.member)
    api.ok("DELETE", f"/iam/v1/{custom}")
    api.grant(CRM, "roles/viewer", controller.member)
    policy = api.read_policy(CRM)
    assert custom in [binding["role"] for binding in policy["bindings"]]
    bindings = [binding for binding in policy["bindings"] if binding["role"] != custom]
    api.write_policy(CRM, {**policy, "bindings": bindings})
    body = {"policy": {"version": 3, "bindings": policy["bindings"]}}
    assert api.refused("POST", f"{CRM}:setIamPolicy", body)[0] == 400


def test_a_recreated_account_has_none_of_the_old_one_s_permissions(api: Api, controller: Api):
    api.grant(CRM, "roles/compute.viewer", controller.member)
    path = f"/iam/v1/{PROJECT}/serviceAccounts"
    old = api.ok("GET", f"{path}/{controller.email}")
    api.ok("DELETE", f"{path}/{controller.email}")
    assert controller("GET", f"{COMPUTE}/{ZONE}/instances")[0] == 401
    again = api.account("controller")
    again.refused("GET", f"{COMPUTE}/{ZONE}/instances")
    members = [binding["members"] for binding in api.read_policy(CRM)["bindings"]]
    tombstone = f"deleted:serviceAccount:{controller.email}?uid={old['uniqueId']}"
    assert [tombstone] in members


def test_the_policy_of_a_deleted_resource_goes_with_it(api: Api, controller: Api):
    api.grant(SUBNET, "roles/compute.networkUser", controller.member)
    controller.ok("GET", SUBNET)
    body = {key: api.ok("GET", SUBNET)[key] for key in ("name", "network", "ipCidrRange")}
    api.ok("DELETE", SUBNET)
    api.ok("POST", f"{COMPUTE}/{REGION}/subnetworks", body)
    controller.refused("GET", SUBNET)


def test_a_token_is_good_for_its_scopes_alone(api: Api, controller: Api):
    api.grant(CRM, "roles/owner", controller.member)
    narrow = controller.token_of(
        controller.email, "https://www.googleapis.com/auth/devstorage.read_only"
    )
    narrow.ok("GET", "/storage/v1/b", project="demo-project")
    status, reason, message = narrow.refused("GET", f"{COMPUTE}/{ZONE}/instances")
    assert (status, reason) == (403, "insufficientPermissions")
    assert message == "Request had insufficient authentication scopes."


def test_a_token_ends(fake: Cloud, api: Api, controller: Api):
    api.grant(CRM, "roles/viewer", controller.member)
    short = api.token_of(controller.email, seconds=10)
    short.ok("GET", f"{COMPUTE}/{ZONE}/instances")
    fake.clock.advance(10)
    status, answer = short("GET", f"{COMPUTE}/{ZONE}/instances")
    assert (status, answer["error"]["status"]) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("token", ["", "nobody", "ya29.unknown", "eyJhbGciOiJub25lIn0.e30."])
def test_an_unknown_token_is_refused(fake: Cloud, token: str):
    status, answer = Api(fake, token)("GET", f"{COMPUTE}/{ZONE}/instances")
    assert (status, answer["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_a_disabled_account_is_refused(api: Api, controller: Api):
    api.grant(CRM, "roles/viewer", controller.member)
    path = f"/iam/v1/{PROJECT}/serviceAccounts/{controller.email}"
    api.ok("POST", f"{path}:disable", {})
    assert controller("GET", f"{COMPUTE}/{ZONE}/instances")[0] == 401
    api.ok("POST", f"{path}:enable", {})
    controller.ok("GET", f"{COMPUTE}/{ZONE}/instances")


def test_an_api_that_is_not_enabled_says_so_and_where(api: Api):
    service = f"/serviceusage/v1/{PROJECT}/services/secretmanager.googleapis.com"
    api.ok("POST", f"{service}:disable", {})
    assert api.ok("GET", service)["state"] == "DISABLED"
    status, answer = api("GET", f"/secretmanager/v1/{PROJECT}/secrets")
    assert status == 403
    error = answer["error"]
    assert error["errors"][0]["reason"] == "accessNotConfigured"
    assert error["details"][0]["reason"] == "SERVICE_DISABLED"
    assert error["message"].startswith(
        "Secret Manager API has not been used in project 123456789012 before or it is disabled. "
        "Enable it by visiting https://console.developers.google.com/apis/api/"
    )
    body = {"serviceIds": ["secretmanager.googleapis.com"]}
    assert api.ok("POST", f"/serviceusage/v1/{PROJECT}/services:batchEnable", body)["done"]
    api.ok("GET", f"/secretmanager/v1/{PROJECT}/secrets")


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ({"role": "roles/none", "members": ["user:a@b.c"]}, "Role roles/none is not supported"),
        (
            {"role": f"{PROJECT}/roles/none", "members": ["user:a@b.c"]},
            "does not exist in the resource's hierarchy",
        ),
        ({"role": "roles/viewer", "members": ["a@b.c"]}, "Invalid member"),
        ({"role": "roles/viewer", "members": ["serviceAccount:None"]}, "not an email address"),
        (
            {
                "role": "roles/viewer",
                "members": ["serviceAccount:gone@demo-project.iam.gserviceaccount.com"],
            },
            "does not exist",
        ),
        (
            {
                "role": "roles/compute.viewer",
                "members": ["user:a@b.c"],
                "condition": {"title": "t", "expression": "resource.name.matches('x')"},
            },
            "not understood: resource.name.matches",
        ),
        (
            {
                "role": "roles/viewer",
                "members": ["user:a@b.c"],
                "condition": {"title": "t", "expression": 'resource.name == "x"'},
            },
            "can't be set on basic roles",
        ),
        (
            {
                "role": "roles/compute.viewer",
                "members": ["user:a@b.c"],
                "condition": {"expression": 'resource.name == "x"'},
            },
            "a title is required",
        ),
    ],
)
def test_a_binding_that_can_not_be_is_refused(api: Api, binding: dict[str, Any], message: str):
    policy = api.read_policy(CRM)
    body = {"policy": {**policy, "version": 3, "bindings": [*policy["bindings"], binding]}}
    status, _, said = api.refused("POST", f"{CRM}:setIamPolicy", body)
    assert status == 400
    assert message in said
    assert api.read_policy(CRM) == policy


def test_a_member_has_a_role_under_20_conditions_at_most(api: Api, controller: Api):
    role = "roles/compute.viewer"
    for number in range(20):
        condition = f'resource.name.startsWith("{number}")'
        api.grant(CRM, role, controller.member, condition=condition)
    policy = api.read_policy(CRM)
    other = {"title": "t", "expression": 'resource.name.startsWith("other")'}
    more = {"role": role, "members": [controller.member], "condition": other}
    body = {"policy": {**policy, "version": 3, "bindings": [*policy["bindings"], more]}}
    status, _, said = api.refused("POST", f"{CRM}:setIamPolicy", body)
    assert status == 400
    assert "under 21 conditions, the most is 20" in said
    assert api.read_policy(CRM) == policy
    api.grant(CRM, "roles/compute.instanceAdmin.v1", controller.member, condition=condition)


def test_a_stale_etag_is_refused(api: Api, controller: Api):
    policy = api.read_policy(CRM)
    api.grant(CRM, "roles/viewer", controller.member)
    status, answer = api("POST", f"{CRM}:setIamPolicy", {"policy": policy})
    assert (status, answer["error"]["status"]) == (409, "ABORTED")


def test_a_reader_who_knows_no_conditions_sees_no_role(api: Api, controller: Api):
    condition = 'resource.name.startsWith("x")'
    api.grant(CRM, "roles/compute.viewer", controller.member, condition=condition)
    seen = api.ok("POST", f"{CRM}:getIamPolicy", {})
    assert seen["version"] == 1
    assert seen["bindings"][1]["role"].startswith("roles/compute.viewer_withcond_")
    body = {"policy": {"bindings": [api.read_policy(CRM)["bindings"][1]]}}
    status, _, message = api.refused("POST", f"{CRM}:setIamPolicy", body)
    assert (status, "version 3" in message) == (400, True)
