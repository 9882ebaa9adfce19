"""Networks, subnets, firewall rules, routers and addresses."""

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud


def test_a_network_with_something_in_it_cant_be_deleted(lab: Caller):
    operation = lab.delete("global/networks/lab")
    (error,) = operation["error"]["errors"]
    assert error["code"] == "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
    assert "subnetworks/lab" in error["message"]
    lab.delete(f"{REGION}/subnetworks/lab")
    assert "error" not in lab.delete("global/networks/lab")
    assert lab.refused("GET", "global/networks/lab")[:2] == (404, "notFound")


def test_a_subnet_with_an_instance_cant_be_deleted(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("one"))
    (error,) = lab.delete(f"{REGION}/subnetworks/lab")["error"]["errors"]
    assert "zones/europe-west4-a/instances/one" in error["message"]
    lab.delete(f"{ZONE}/instances/one")
    assert "error" not in lab.delete(f"{REGION}/subnetworks/lab")


def test_names_are_taken_once(lab: Caller):
    body = {"name": "lab", "autoCreateSubnetworks": False}
    status, reason, message = lab.refused("POST", "global/networks", body)
    assert (status, reason) == (409, "alreadyExists")
    assert message == "The resource 'projects/demo-project/global/networks/lab' already exists"


def subnet(name: str, cidr: str, **members: object) -> dict[str, object]:
    return {"name": name, "network": "global/networks/lab", "ipCidrRange": cidr, **members}


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "10.0.0.0/8", "not a range", "10.0.0.1/24", ""])
def test_a_subnet_needs_a_range_of_its_own(lab: Caller, cidr: str):
    status, _, message = lab.refused("POST", f"{REGION}/subnetworks", subnet("other", cidr))
    assert status == 400
    assert "range" in message.lower()


def test_a_subnet_of_an_unknown_network_is_refused(lab: Caller):
    body = subnet("other", "10.9.0.0/24") | {"network": "global/networks/none"}
    status, reason, message = lab.refused("POST", f"{REGION}/subnetworks", body)
    assert (status, reason) == (400, "invalid")
    assert "The referenced network resource cannot be found" in message


def test_a_subnet_grows_and_gets_private_access(lab: Caller):
    url = f"{REGION}/subnetworks/lab"
    assert lab.get(url)["gatewayAddress"] == "10.0.0.1"
    lab.post(f"{url}/setPrivateIpGoogleAccess", {"privateIpGoogleAccess": True})
    lab.post(f"{url}/expandIpCidrRange", {"ipCidrRange": "10.0.0.0/16"})
    grown = lab.get(url)
    assert (grown["privateIpGoogleAccess"], grown["ipCidrRange"]) == (True, "10.0.0.0/16")
    smaller = {"ipCidrRange": "10.0.0.0/24"}
    assert lab.refused("POST", f"{url}/expandIpCidrRange", smaller)[0] == 400


def test_a_patch_needs_the_present_fingerprint(lab: Caller):
    url = f"{REGION}/subnetworks/lab"
    old = lab.get(url)["fingerprint"]
    lab.ok("PATCH", url, {"privateIpGoogleAccess": True, "fingerprint": old})
    stale = {"privateIpGoogleAccess": False, "fingerprint": old}
    assert lab.refused("PATCH", url, stale)[:2] == (412, "conditionNotMet")


def firewall(**members: object) -> dict[str, object]:
    rule = {"IPProtocol": "tcp", "ports": ["22"]}
    return {"name": "ssh", "network": "global/networks/lab", "allowed": [rule], **members}


def test_a_firewall_rule_is_patched(lab: Caller):
    lab.post("global/firewalls", firewall(sourceRanges=["35.235.240.0/20"]))
    before = lab.get("global/firewalls/ssh")
    assert (before["direction"], before["priority"], before["disabled"]) == ("INGRESS", 1000, False)
    lab.ok("PATCH", "global/firewalls/ssh", {**before, "sourceRanges": ["10.0.0.0/8"]})
    after = lab.get("global/firewalls/ssh")
    assert after == {**before, "sourceRanges": ["10.0.0.0/8"]}
    lab.ok("PATCH", "global/firewalls/ssh", {"sourceRanges": None})
    assert "sourceRanges" not in lab.get("global/firewalls/ssh")


def test_a_firewall_rule_of_an_account_is_for_no_addresses(lab: Caller):
    lab.post("global/firewalls", firewall(sourceServiceAccounts=["a@lab.iam"]))
    assert "sourceRanges" not in lab.get("global/firewalls/ssh")
    lab.post("global/firewalls", firewall(name="all"))
    assert lab.get("global/firewalls/all")["sourceRanges"] == ["0.0.0.0/0"]


def test_a_firewall_rule_allows_or_denies(lab: Caller):
    both = firewall(denied=[{"IPProtocol": "all"}])
    neither = firewall(allowed=[])
    for body in (both, neither):
        assert "Exactly one of allowed" in lab.refused("POST", "global/firewalls", body)[2]


def test_a_router_has_its_nats_in_it(lab: Caller):
    body = {"name": "nat", "network": "global/networks/lab", "bgp": None}
    lab.post(f"{REGION}/routers", body)
    router = lab.get(f"{REGION}/routers/nat")
    assert router["region"].endswith("/regions/europe-west4")
    assert "bgp" not in router
    nat = {"name": "out", "natIpAllocateOption": "AUTO_ONLY"}
    lab.ok("PATCH", f"{REGION}/routers/nat", {"nats": [nat]})
    (shown,) = lab.get(f"{REGION}/routers/nat")["nats"]
    assert nat.items() <= shown.items()
    lab.ok("PATCH", f"{REGION}/routers/nat", {"nats": []})
    assert lab.get(f"{REGION}/routers/nat")["nats"] == []
    lab.delete(f"{REGION}/subnetworks/lab")
    assert "routers/nat" in lab.delete("global/networks/lab")["error"]["errors"][0]["message"]


def test_a_reserved_address_belongs_to_who_names_it(lab: Caller):
    body = {"name": "controller", "addressType": "INTERNAL", "address": "10.0.0.9"}
    lab.post(f"{REGION}/addresses", {**body, "subnetwork": f"{REGION}/subnetworks/lab"})
    url = f"{REGION}/addresses/controller"
    address = lab.get(url)
    assert (address["address"], address["status"]) == ("10.0.0.9", "RESERVED")
    labels = {"labels": {"a": "b"}, "labelFingerprint": address["labelFingerprint"]}
    lab.post(f"{url}/setLabels", labels)
    assert lab.get(url)["labels"] == {"a": "b"}
    assert lab.refused("POST", f"{url}/setLabels", labels)[:2] == (412, "conditionNotMet")
    nic = {"subnetwork": f"{REGION}/subnetworks/lab", "networkIP": "10.0.0.9"}
    lab.post(f"{ZONE}/instances", instance("controller", networkInterfaces=[nic]))
    used = lab.get(url)
    assert used["status"] == "IN_USE"
    assert used["users"] == [lab.get(f"{ZONE}/instances/controller")["selfLink"]]
    refused = lab.refused("DELETE", url)
    assert refused[:2] == (400, "resourceInUseByAnotherResource")
    other = instance("other", networkInterfaces=[nic])
    assert "already being used" in lab.refused("POST", f"{ZONE}/instances", other)[2]
    lab.delete(f"{ZONE}/instances/controller")
    lab.delete(url)


def test_nobody_gets_a_reserved_address_by_chance(fake: Cloud, lab: Caller):
    lab.post(f"{REGION}/subnetworks", subnet("small", "10.1.0.0/29"))
    reserved = {"name": "kept", "addressType": "INTERNAL", "address": "10.1.0.3"}
    lab.post(f"{REGION}/addresses", {**reserved, "subnetwork": f"{REGION}/subnetworks/small"})
    nic = [{"subnetwork": f"{REGION}/subnetworks/small"}]
    got = []
    for number in range(3):
        lab.post(f"{ZONE}/instances", instance(f"n{number}", networkInterfaces=nic))
        vm = lab.get(f"{ZONE}/instances/n{number}")
        got.append(vm["networkInterfaces"][0]["networkIP"])
    assert sorted(got) == ["10.1.0.2", "10.1.0.4", "10.1.0.5"]
    full = instance("n3", networkInterfaces=nic)
    assert "exhausted" in lab.refused("POST", f"{ZONE}/instances", full)[2]
    lab.delete(f"{ZONE}/instances/n1")
    lab.post(f"{ZONE}/instances", full)


def test_lists_filter_page_and_select(lab: Caller):
    for number in range(5):
        lab.post(f"{REGION}/subnetworks", subnet(f"s{number}", f"10.{number + 1}.0.0/24"))
    first = lab.get(f"{REGION}/subnetworks", maxResults=2, filter="name=s*")
    assert [item["name"] for item in first["items"]] == ["s0", "s1"]
    rest = lab.get(
        f"{REGION}/subnetworks",
        filter="name=s*",
        pageToken=first["nextPageToken"],
        fields="items/name",
    )
    assert rest == {"items": [{"name": "s2"}, {"name": "s3"}, {"name": "s4"}]}
    assert "items" not in lab.get(f"{REGION}/subnetworks", filter="name=none")


def test_places_that_dont_exist_are_refused(lab: Caller):
    assert lab.refused("GET", "regions/mars-north1/subnetworks")[0] == 400
    assert lab.refused("GET", "zones/europe-west4-z/instances")[0] == 400
