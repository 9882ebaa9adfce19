"""Secrets and their versions; payloads are in no log and no error."""

import logging
from pathlib import Path
from typing import Any

import pytest
from fakecloud_api import NUMBER, PROJECT, Api

from muster_sandbox.fakecloud import Settings, open_cloud
from muster_sandbox.fakecloud.clock import ManualClock

SECRETS = f"/secretmanager/v1/{PROJECT}/secrets"
SECRET = f"{SECRETS}/munge"
PLANTED = "UGxhbnRlZFNlY3JldFZhbHVl"  # PlantedSecretValue


@pytest.fixture
def munge(api: Api) -> Api:
    api.ok("POST", SECRETS, {"replication": {"automatic": {}}}, secretId="munge")
    return api


def add(api: Api, data: str, **payload: Any) -> dict[str, Any]:
    return api.ok("POST", f"{SECRET}:addVersion", {"payload": {"data": data, **payload}})


def test_the_latest_version_is_the_newest_whatever_its_state(munge: Api):
    assert munge.refused("GET", f"{SECRET}/versions/latest:access")[0] == 404
    add(munge, "b25l")
    add(munge, "dHdv")
    latest = munge.ok("GET", f"{SECRET}/versions/latest:access")
    assert latest["name"] == f"{NUMBER}/secrets/munge/versions/2"
    assert latest["payload"]["data"] == "dHdv"
    assert munge.ok("GET", f"{SECRET}/versions/1:access")["payload"]["data"] == "b25l"
    munge.ok("POST", f"{SECRET}/versions/2:disable", {})
    status, _, message = munge.refused("GET", f"{SECRET}/versions/latest:access")
    assert (status, "is in DISABLED state" in message) == (400, True)
    munge.ok("POST", f"{SECRET}/versions/2:enable", {})
    munge.ok("GET", f"{SECRET}/versions/latest:access")


def test_a_destroyed_version_is_gone_for_good_and_its_number_used(munge: Api):
    add(munge, "b25l")
    munge.ok("POST", f"{SECRET}/versions/1:destroy", {})
    for verb in ("enable", "disable", "destroy"):
        assert munge.refused("POST", f"{SECRET}/versions/1:{verb}", {})[0] == 400
    assert munge.refused("GET", f"{SECRET}/versions/1:access")[0] == 400
    assert munge.ok("GET", f"{SECRET}/versions/1")["state"] == "DESTROYED"
    assert add(munge, "dHdv")["name"].endswith("/versions/2")


def test_versions_are_listed_newest_first_and_by_state(munge: Api):
    for _ in range(11):
        add(munge, "eA==")
    munge.ok("POST", f"{SECRET}/versions/3:disable", {})

    def listed(**query: Any) -> tuple[list[str], str]:
        answer = munge.ok("GET", f"{SECRET}/versions", **query)
        numbers = [version["name"].rpartition("/")[2] for version in answer["versions"]]
        return numbers, answer.get("nextPageToken", "")

    numbers, token = listed(pageSize=6)
    assert numbers == ["11", "10", "9", "8", "7", "6"]
    assert listed(pageSize=6, pageToken=token) == (["5", "4", "3", "2", "1"], "")
    assert listed(filter="state:DISABLED") == (["3"], "")
    assert munge.refused("GET", f"{SECRET}/versions", filter="name:x")[0] == 400


def test_secrets_are_listed_by_label(munge: Api):
    body = {"replication": {"automatic": {}}, "labels": {"muster": "lab"}}
    munge.ok("POST", SECRETS, body, secretId="db")
    answer = munge.ok("GET", SECRETS, filter="labels.muster=lab")
    assert [secret["name"] for secret in answer["secrets"]] == [f"{NUMBER}/secrets/db"]
    assert munge.ok("GET", SECRETS)["totalSize"] == 2


def test_a_secret_that_is_deleted_takes_its_versions_along(munge: Api):
    add(munge, "b25l")
    munge.ok("DELETE", SECRET)
    munge.ok("POST", SECRETS, {"replication": {"automatic": {}}}, secretId="munge")
    assert munge.refused("GET", f"{SECRET}/versions/1")[0] == 404
    assert add(munge, "dHdv")["name"].endswith("/versions/1")


def test_an_alias_names_a_version(munge: Api):
    add(munge, "b25l")
    add(munge, "dHdv")
    body = {"versionAliases": {"old": "1"}}
    munge.ok("PATCH", SECRET, body, updateMask="version_aliases")
    assert munge.ok("GET", f"{SECRET}/versions/old:access")["payload"]["data"] == "b25l"


def test_an_etag_that_is_not_the_present_one_refuses(munge: Api):
    etag = munge.ok("GET", SECRET)["etag"]
    munge.ok("PATCH", SECRET, {"labels": {"a": "b"}, "etag": etag}, updateMask="labels")
    body = {"labels": {"a": "c"}, "etag": etag}
    status, reason, _ = munge.refused("PATCH", SECRET, body, updateMask="labels")
    assert (status, reason) == (400, "failedPrecondition")
    assert munge.refused("DELETE", SECRET, etag=etag)[0] == 400
    version = add(munge, "b25l")
    munge.ok("POST", f"{SECRET}/versions/1:disable", {"etag": version["etag"]})
    status, _, _ = munge.refused("POST", f"{SECRET}/versions/1:enable", {"etag": version["etag"]})
    assert status == 400


@pytest.mark.parametrize(
    ("path", "body", "query", "answer"),
    [
        ("", {"replication": {"automatic": {}}}, {"secretId": "munge"}, (409, "already exists")),
        ("", {"replication": {"automatic": {}}}, {"secretId": "a b"}, (400, "secretId")),
        ("", {"replication": {"automatic": {}}}, {}, (400, "secretId")),
        ("", {}, {"secretId": "x"}, (400, "replication is required")),
        ("", {"replication": {"automatic": {}}, "ttl": "3s"}, {"secretId": "x"}, (501, "ttl")),
        ("/munge:addVersion", {"payload": {}}, {}, (400, "data is required")),
        ("/munge:addVersion", {"payload": {"data": "#"}}, {}, (400, "value at 'payload.data'")),
        ("/munge:addVersion", {"payload": {"data": "A" * 90_000}}, {}, (400, "65536 bytes")),
        (
            "/munge:addVersion",
            {"payload": {"data": "b25l", "dataCrc32c": "1"}},
            {},
            (400, "checksum doesn't match"),
        ),
        ("/none:addVersion", {"payload": {"data": "b25l"}}, {}, (404, "[projects/123456789012/")),
    ],
)
def test_what_can_not_be_is_refused(
    munge: Api, path: str, body: Any, query: dict[str, str], answer: tuple[int, str]
):
    status, _, said = munge.refused("POST", f"{SECRETS}{path}", body, **query)
    assert (status, answer[1] in said) == (answer[0], True), said


@pytest.mark.parametrize("mask", ["", "replication", "labels,name"])
def test_only_what_can_be_changed_is(munge: Api, mask: str):
    query = {"updateMask": mask} if mask else {}
    assert munge.refused("PATCH", SECRET, {"labels": {}}, **query)[0] == 400


def test_a_payload_is_in_no_log_and_no_other_answer(munge: Api, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    answers = [add(munge, PLANTED)]
    answers += [
        munge.ok("GET", SECRET),
        munge.ok("GET", f"{SECRET}/versions"),
        munge.ok("GET", f"{SECRET}/versions/1"),
    ]
    body = {"payload": {"data": PLANTED, "colour": PLANTED}}
    refused = [munge("POST", f"{SECRET}:addVersion", body)]
    refused += [
        munge("POST", f"{SECRET}:addVersion", {"payload": {"data": f"{PLANTED}#"}}),
        munge("POST", f"{SECRET}:addVersion", {"payload": {"data": f"{PLANTED}A"}}),
        munge("POST", f"{SECRET}:addVersion", {"payload": {"data": PLANTED, "dataCrc32c": "1"}}),
        munge("POST", f"{SECRETS}/none:addVersion", {"payload": {"data": PLANTED}}),
        munge("POST", f"{SECRET}:addVersion", f'{{"payload": "{PLANTED}'.encode()),
        munge("POST", f"{SECRET}:addVersion", {"payload": PLANTED}),
    ]
    assert all(status >= 400 for status, _ in refused)
    for answer in (*answers, *refused):
        assert PLANTED not in str(answer)
    assert PLANTED not in caplog.text
    # The test itself would notice: here it is.
    assert PLANTED in str(munge.ok("GET", f"{SECRET}/versions/1:access"))


def test_secrets_survive_a_restart(tmp_path: Path):
    for _ in range(2):
        cloud = open_cloud(Settings(), tmp_path, ManualClock())
        api = Api(cloud)
        if api("GET", SECRET)[0] == 404:
            api.ok("POST", SECRETS, {"replication": {"automatic": {}}}, secretId="munge")
            add(api, "b25l")
        else:
            assert api.ok("GET", f"{SECRET}/versions/1:access")["payload"]["data"] == "b25l"
            assert cloud.failures == []
            cloud.close()
            return
        cloud.close()
    raise AssertionError("the secret was gone after the restart")
