"""Networks over HTTP: the whole way through server, description and store."""

import httpx

BASE = "/compute/v1/projects/demo-project"


def test_a_network_is_made_found_and_deleted(http: httpx.Client):
    made = http.post(
        f"{BASE}/global/networks", json={"name": "lab", "autoCreateSubnetworks": False}
    )
    assert made.status_code == 200, made.text
    operation = http.get(f"{BASE}/global/operations/{made.json()['name']}").json()
    assert operation["status"] == "DONE"
    found = http.get(f"{BASE}/global/networks/lab").json()
    assert found["id"] == operation["targetId"]
    assert http.get(f"/compute/beta{BASE[11:]}/global/networks/lab").json() == found
    assert http.delete(f"{BASE}/global/networks/lab").status_code == 200
    gone = http.get(f"{BASE}/global/networks/lab")
    assert gone.status_code == 404
    assert gone.json()["error"]["errors"][0]["reason"] == "notFound"


def test_an_unknown_field_is_refused_by_name(http: httpx.Client):
    refused = http.post(
        f"{BASE}/global/networks", json={"name": "lab", "routingConfig": {"colour": 1}}
    )
    assert refused.status_code == 400
    assert "Unknown name \"colour\" at 'routingConfig'" in refused.json()["error"]["message"]


def test_what_is_not_implemented_says_its_name(http: httpx.Client):
    refused = http.get(f"{BASE}/global/targetPools")
    assert refused.status_code == 404
    refused = http.get(f"{BASE}/global/healthChecks")
    assert refused.status_code == 501
    assert "compute.healthChecks.list" in refused.json()["error"]["message"]


def test_a_call_without_a_token_is_refused(cloud):
    with httpx.Client(base_url=cloud.url, trust_env=False) as client:
        assert client.get(f"{BASE}/global/networks").status_code == 401
