"""A grant is in force some time after it is given, and gone some time after it is taken."""

import pytest
from fakecloud_api import PROJECT, Api
from fakecloud_calls import ZONE

from muster_sandbox.fakecloud import Cloud
from muster_sandbox.fakecloud.clock import ManualClock

CRM = f"/cloudresourcemanager/v1/{PROJECT}"
INSTANCES = f"/compute/v1/{PROJECT}/{ZONE}/instances"


@pytest.fixture
def late(fake: Cloud) -> ManualClock:
    fake.settings.grant_seconds = 60
    assert isinstance(fake.clock, ManualClock)
    return fake.clock


def may_list(account: Api) -> bool:
    return account("GET", INSTANCES)[0] == 200


def test_a_grant_is_in_force_late_and_seen_at_once(api: Api, late: ManualClock) -> None:
    account = api.account("newcomer")
    api.grant(CRM, "roles/compute.viewer", account.member)
    assert account.member in str(api.read_policy(CRM))
    assert not may_list(account)
    late.advance(59)
    assert not may_list(account)
    late.advance(2)
    assert may_list(account)


def test_what_is_taken_goes_late(api: Api, late: ManualClock) -> None:
    account = api.account("newcomer")
    api.grant(CRM, "roles/compute.viewer", account.member)
    late.advance(61)
    policy = api.read_policy(CRM)
    kept = [binding for binding in policy["bindings"] if "viewer" not in binding["role"]]
    api.write_policy(CRM, {**policy, "bindings": kept})
    assert may_list(account)
    late.advance(61)
    assert not may_list(account)


def test_each_change_has_its_own_time(api: Api, late: ManualClock) -> None:
    first, second = api.account("the-first"), api.account("the-second")
    api.grant(CRM, "roles/compute.viewer", first.member)
    late.advance(30)
    api.grant(CRM, "roles/compute.admin", second.member)
    late.advance(31)
    assert (may_list(first), may_list(second)) == (True, False)
    late.advance(30)
    assert (may_list(first), may_list(second)) == (True, True)


def test_a_resource_of_a_deleted_one_s_name_has_nothing_of_it(api: Api, late: ManualClock) -> None:
    account = api.account("newcomer")
    made = {"name": "lab-b"}
    for _ in range(2):
        api.ok("POST", "/storage/v1/b", made, project="demo-project")
        api.grant("/storage/v1/b/lab-b", "roles/storage.objectViewer", account.member)
        late.advance(61)
        assert account("GET", "/storage/v1/b/lab-b/o")[0] == 200
        policy = api.read_policy("/storage/v1/b/lab-b")
        api.write_policy("/storage/v1/b/lab-b", {**policy, "bindings": []})
        api.ok("DELETE", "/storage/v1/b/lab-b")
        api.ok("POST", "/storage/v1/b", made, project="demo-project")
        assert account("GET", "/storage/v1/b/lab-b/o")[0] == 403
        api.ok("DELETE", "/storage/v1/b/lab-b")
