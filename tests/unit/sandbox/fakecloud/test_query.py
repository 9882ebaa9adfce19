"""filter, fields and paging."""

import pytest

from muster_sandbox.fakecloud import query
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.filters import compile_filter

NODE = {
    "name": "lab-debug-7",
    "status": "RUNNING",
    "labels": {"muster-cluster": "lab", "set": "debug"},
    "scheduling": {"preemptible": True},
    "disks": [{"boot": True, "diskSizeGb": "10"}, {"boot": False, "diskSizeGb": "200"}],
    "networkInterfaces": [{"networkIP": "10.0.0.2"}],
    "creationTimestamp": "2026-11-21T09:40:29.123-08:00",
}

PASSES = [
    "name=lab-debug-7",
    'name = "lab-debug-7"',
    "name eq lab-debug-7",
    "name eq 'lab-.*'",
    "name eq lab-debug-[0-9]",
    r'name eq ".*\bdebug\b.*"',
    r"name eq '.*\bdebug\-7\b.*'",
    r'name = "lab\-debug-7"',
    r'"name" eq "lab-debug-\d"',
    "name ne 'gpu-.*'",
    "name=lab-*",
    "labels.muster-cluster=lab",
    "labels.muster-cluster=lab AND labels.set=debug",
    "labels.muster-cluster=lab labels.set=debug",
    "(labels.muster-cluster=lab) (status=RUNNING)",
    "(name=nothing) OR (status = RUNNING)",
    "status=STOPPING OR status=RUNNING AND labels.set=debug",
    "NOT status=TERMINATED",
    "-status=TERMINATED",
    "status!=TERMINATED",
    "labels.set:*",
    "labels.set:deb",
    "scheduling.preemptible=true",
    "disks.diskSizeGb>100",
    "disks.diskSizeGb>=200",
    "networkInterfaces.networkIP=10.0.0.2",
    "creationTimestamp > 2026-11-20",
    'labels.set = "debug" AND (status = "RUNNING" OR status = "STAGING")',
]
FAILS = [
    "name=lab-debug",
    "name eq lab-debug",
    "name ne 'lab-.*'",
    r'name eq ".*\bdeb\b.*"',
    "name=*-8",
    "labels.muster-cluster=other",
    "labels.muster-cluster=lab AND labels.set=gpu",
    "NOT status=RUNNING",
    "labels.owner:*",
    "labels.owner=ada",
    "disks.diskSizeGb>200",
    "status=RUNNING AND (labels.set=a OR labels.set=b)",
]


@pytest.mark.parametrize("text", PASSES)
def test_a_filter_lets_pass(text):
    assert compile_filter(text)(NODE)


@pytest.mark.parametrize("text", FAILS)
def test_a_filter_holds_back(text):
    assert not compile_filter(text)(NODE)


@pytest.mark.parametrize(
    "text", ["name", "name=", "=x", "(name=a", "name=a)", "name eq '['", "a AND", "NOT", '"open']
)
def test_a_filter_that_is_none_is_refused(text):
    with pytest.raises(ApiError, match="Invalid list filter expression"):
        compile_filter(text)


@pytest.mark.parametrize(
    ("fields", "selected"),
    [
        ("name", {"name": "lab-debug-7"}),
        ("name,status", {"name": "lab-debug-7", "status": "RUNNING"}),
        ("labels/set", {"labels": {"set": "debug"}}),
        ("disks(boot)", {"disks": [{"boot": True}, {"boot": False}]}),
        (
            "disks/diskSizeGb,name",
            {"disks": [{"diskSizeGb": "10"}, {"diskSizeGb": "200"}], "name": "lab-debug-7"},
        ),
        ("labels(set,muster-cluster)", {"labels": {"muster-cluster": "lab", "set": "debug"}}),
        ("*/preemptible", {"scheduling": {"preemptible": True}}),
        ("nothing", {}),
    ],
)
def test_fields_select_parts(fields, selected):
    result = query.select(NODE, fields)
    if fields.startswith("*"):
        result = {name: inner for name, inner in result.items() if name == "scheduling"}
    assert result == selected


def test_a_list_keeps_its_token_only_if_it_is_asked_for():
    answer = {"items": [{"name": "a", "id": "1"}], "nextPageToken": "t", "kind": "list"}
    assert query.select(answer, "items(name),nextPageToken") == {
        "items": [{"name": "a"}],
        "nextPageToken": "t",
    }


@pytest.mark.parametrize("fields", ["items(", "items(a", "a,,b", "a)", "a/"])
def test_fields_that_are_none_are_refused(fields):
    with pytest.raises(ApiError, match="Invalid field selection"):
        query.select({"items": []}, fields)


def test_pages_show_each_name_once_while_others_come_and_go():
    names = {f"n-{number}" for number in range(100, 200)}
    seen: list[str] = []
    token = ""
    while True:
        page, token = query.page(names, {"maxResults": "7", "pageToken": token})
        seen += page
        if not token:
            break
        names.discard(page[0])  # one that was shown
        names.discard("n-199")  # one that was not
    assert seen == [f"n-{number}" for number in range(100, 199)]


def test_a_token_that_is_none_is_refused():
    with pytest.raises(ApiError, match="pageToken"):
        query.page(["a"], {"pageToken": "nonsense"})
