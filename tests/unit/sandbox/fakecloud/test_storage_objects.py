"""Uploads, downloads, lists, versions and preconditions of Cloud Storage."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakecloud_api import Api

from muster_sandbox.fakecloud import Settings, open_cloud
from muster_sandbox.fakecloud.clock import ManualClock

UPLOAD = "/upload/storage/v1/b/lab/o"
OBJECTS = "/storage/v1/b/lab/o"


@pytest.fixture
def bucket(api: Api) -> Api:
    api.ok("POST", "/storage/v1/b", {"name": "lab"}, project="demo-project")
    return api


def put(api: Api, name: str, content: bytes = b"content", **query: Any) -> dict[str, Any]:
    return api.ok("POST", UPLOAD, content, uploadType="media", name=name, **query)


def versioned(api: Api) -> None:
    api.ok("PATCH", "/storage/v1/b/lab", {"versioning": {"enabled": True}})


@pytest.mark.parametrize(
    ("asked", "status", "content", "content_range"),
    [
        ("", 200, b"0123456789", None),
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=-20", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-20", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, None, None),
    ],
)
def test_a_range_of_an_object(
    bucket: Api, asked: str, status: int, content: bytes | None, content_range: str | None
):
    made = put(bucket, "a", b"0123456789")
    for path in (f"{OBJECTS}/a", "/download/storage/v1/b/lab/o/a"):
        answered, _ = bucket("GET", path, alt="media", headers={"range": asked})
        assert answered == status
        if content is not None:
            assert bucket.content == content
            assert bucket.headers.get("content-range") == content_range
            wanted = f"crc32c={made['crc32c']},md5={made['md5Hash']}"
            assert bucket.headers["x-goog-hash"] == wanted


def test_a_list_by_prefix_and_delimiter_and_in_pages(bucket: Api):
    for name in ("a", "b/1", "b/2", "b/c/3", "d/", "e"):
        put(bucket, name)

    def listed(**query: Any) -> tuple[list[str], list[str]]:
        answer = bucket.ok("GET", OBJECTS, **query)
        names = [item["name"] for item in answer.get("items", [])]
        return names, answer.get("prefixes", [])

    assert listed() == (["a", "b/1", "b/2", "b/c/3", "d/", "e"], [])
    assert listed(delimiter="/") == (["a", "e"], ["b/", "d/"])
    assert listed(delimiter="/", prefix="b/") == (["b/1", "b/2"], ["b/c/"])
    assert listed(delimiter="/", includeTrailingDelimiter="true") == (
        ["a", "d/", "e"],
        ["b/", "d/"],
    )
    assert listed(startOffset="b/2", endOffset="e") == (["b/2", "b/c/3", "d/"], [])
    pages, token = [], ""
    while True:
        query = {"pageToken": token} if token else {}
        answer = bucket.ok("GET", OBJECTS, maxResults=2, delimiter="/", **query)
        pages.append(
            [item["name"] for item in answer.get("items", [])] + answer.get("prefixes", [])
        )
        token = answer.get("nextPageToken", "")
        if not token:
            break
    assert pages == [["a", "b/"], ["e", "d/"]]


def test_versions_stay_until_they_are_deleted_each(bucket: Api):
    versioned(bucket)
    first = put(bucket, "a", b"one")["generation"]
    second = put(bucket, "a", b"two")["generation"]
    bucket.ok("GET", f"{OBJECTS}/a", alt="media", generation=first)
    assert bucket.content == b"one"
    bucket.ok("DELETE", f"{OBJECTS}/a")
    assert bucket.refused("GET", f"{OBJECTS}/a")[0] == 404
    assert "items" not in bucket.ok("GET", OBJECTS)
    versions = bucket.ok("GET", OBJECTS, versions="true")["items"]
    assert [version["generation"] for version in versions] == [first, second]
    assert all("timeDeleted" in version for version in versions)
    assert bucket.refused("DELETE", "/storage/v1/b/lab")[:2] == (409, "conflict")
    for generation in (first, second):
        bucket.ok("DELETE", f"{OBJECTS}/a", generation=generation)
    bucket.ok("DELETE", "/storage/v1/b/lab")


def test_a_live_version_that_is_deleted_by_generation_is_gone(bucket: Api):
    versioned(bucket)
    generation = put(bucket, "a")["generation"]
    bucket.ok("DELETE", f"{OBJECTS}/a", generation=generation)
    assert "items" not in bucket.ok("GET", OBJECTS, versions="true")


@pytest.mark.parametrize(
    ("exists", "query", "status"),
    [
        (False, {"ifGenerationMatch": "0"}, 200),
        (True, {"ifGenerationMatch": "0"}, 412),
        (True, {"ifGenerationMatch": "$generation"}, 200),
        (True, {"ifGenerationMatch": "1"}, 412),
        (True, {"ifGenerationNotMatch": "$generation"}, 412),
        (False, {"ifGenerationNotMatch": "0"}, 412),
        (True, {"ifMetagenerationMatch": "1"}, 200),
        (True, {"ifMetagenerationMatch": "2"}, 412),
        (False, {"ifMetagenerationMatch": "1"}, 412),
    ],
)
@pytest.mark.parametrize("kind", ["media", "resumable"])
def test_a_precondition(bucket: Api, kind: str, exists: bool, query: dict[str, str], status: int):
    generation = put(bucket, "a")["generation"] if exists else ""
    query = {key: value.replace("$generation", generation) for key, value in query.items()}
    answered, answer = bucket("POST", UPLOAD, b"", uploadType=kind, name="a", **query)
    assert answered == status
    if status == 412:
        assert answer["error"]["errors"][0]["reason"] == "conditionNotMet"


def begin(api: Api, name: str, **query: Any) -> str:
    """The path and query of a resumable upload's session."""
    headers = {"x-upload-content-type": "text/x-log"}
    api.ok("POST", UPLOAD, {"name": name}, uploadType="resumable", headers=headers, **query)
    location = api.headers["location"]
    assert location.startswith(f"http://fake.test:80{UPLOAD}?")
    return location.rpartition("upload_id=")[2]


def test_a_resumable_upload_in_parts_one_of_which_comes_twice(bucket: Api):
    session = {"uploadType": "resumable", "upload_id": begin(bucket, "a")}

    def send(content: bytes, content_range: str) -> tuple[int, dict[str, Any]]:
        headers = {"content-range": content_range}
        return bucket("PUT", UPLOAD, content, headers=headers, **session)

    assert send(b"", "bytes */*")[0] == 308
    assert "range" not in bucket.headers
    assert send(b"0123", "bytes 0-3/*")[0] == 308
    assert bucket.headers["range"] == "bytes=0-3"
    assert send(b"0123", "bytes 0-3/*")[0] == 308
    assert send(b"89", "bytes 8-9/10")[0] == 503
    assert send(b"45", "bytes 4-6/10")[0] == 400
    assert send(b"", "bytes */10")[0] == 308
    status, made = send(b"456789", "bytes 4-9/10")
    assert (status, made["size"], made["contentType"]) == (200, "10", "text/x-log")
    bucket.ok("GET", f"{OBJECTS}/a", alt="media")
    assert bucket.content == b"0123456789"
    assert send(b"", "bytes */10")[0] == 404


def test_a_resumable_upload_at_once(bucket: Api):
    session = begin(bucket, "a")
    bucket.ok("PUT", UPLOAD, b"all", uploadType="resumable", upload_id=session)
    assert bucket.ok("GET", f"{OBJECTS}/a")["size"] == "3"


@pytest.mark.parametrize("header", ["crc32c=AAAAAA==", "md5=AAAAAAAAAAAAAAAAAAAAAA=="])
def test_content_that_is_not_what_was_sent_is_refused(bucket: Api, header: str):
    headers = {"x-goog-hash": header}
    query = {"uploadType": "media", "name": "a", "headers": headers}
    status, _, message = bucket.refused("POST", UPLOAD, b"content", **query)
    assert (status, "doesn't match" in message) == (400, True)
    assert bucket.refused("GET", f"{OBJECTS}/a")[0] == 404


@pytest.mark.parametrize(
    ("body", "content_type", "query", "message"),
    [
        (b"x", "text/plain", {"uploadType": "multipart", "name": "a"}, "without a boundary"),
        (
            b"--b\r\n\r\n{}\r\n--b--",
            "multipart/related; boundary=b",
            {"uploadType": "multipart", "name": "a"},
            "exactly two parts",
        ),
        (
            b'--b\r\n\r\n{"colour": 1}\r\n--b\r\n\r\nx\r\n--b--',
            "multipart/related; boundary=b",
            {"uploadType": "multipart", "name": "a"},
            'Unknown name "colour"',
        ),
        (b"x", "text/plain", {"uploadType": "media"}, "Invalid object name"),
        (b"x", "text/plain", {"uploadType": "other", "name": "a"}, "Upload type 'other'"),
    ],
)
def test_an_upload_that_can_not_be_read_is_refused(
    bucket: Api, body: bytes, content_type: str, query: dict[str, str], message: str
):
    headers = {"content-type": content_type}
    status, _, said = bucket.refused("POST", UPLOAD, body, headers=headers, **query)
    assert (status, message in said) == (400, True), said


def test_an_upload_may_come_in_chunks_of_unknown_length(http: httpx.Client):
    """As the provider sends it: multipart/related by Transfer-Encoding: chunked."""
    http.post("/storage/v1/b", params={"project": "demo-project"}, json={"name": "lab"})

    def chunks() -> Iterator[bytes]:
        yield b'--xyz\r\nContent-Type: application/json\r\n\r\n{"contentType": "text/x"}'
        yield b"\r\n--xyz\r\nContent-Type: text/plain\r\n\r\n"
        for _ in range(100):
            yield b"0123456789" * 1000
        yield b"\r\n--xyz--\r\n"

    answer = http.post(
        UPLOAD,
        params={"uploadType": "multipart", "name": "a/b"},
        headers={"content-type": 'multipart/related; boundary="xyz"'},
        content=chunks(),
    )
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 200, answer.text
    assert (answer.json()["size"], answer.json()["contentType"]) == ("1000000", "text/x")
    content = http.get(f"{OBJECTS}/a%2Fb", params={"alt": "media"}).content
    assert content == b"0123456789" * 100_000


def test_metadata_is_merged_and_null_removes(bucket: Api):
    put(bucket, "a")
    bucket.ok(
        "PATCH", f"{OBJECTS}/a", {"metadata": {"x": "1", "y": "2"}, "cacheControl": "no-store"}
    )
    body = {"metadata": {"x": None}, "cacheControl": None}
    changed = bucket.ok("PATCH", f"{OBJECTS}/a", body)
    assert (changed["metadata"], changed["metageneration"]) == ({"y": "2"}, "3")
    assert "cacheControl" not in changed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "Upper"}, "Invalid bucket name"),
        ({"name": "google-x"}, "Invalid bucket name"),
        ({"name": "a"}, "Invalid bucket name"),
        ({"name": "lab-2", "colour": "red"}, 'Unknown name "colour"'),
    ],
)
def test_a_bucket_that_can_not_be_is_refused(api: Api, body: dict[str, Any], message: str):
    status, _, said = api.refused("POST", "/storage/v1/b", body, project="demo-project")
    assert (status, message in said) == (400, True), said


def test_a_name_is_taken_once(bucket: Api):
    again = bucket.refused("POST", "/storage/v1/b", {"name": "lab"}, project="demo-project")
    assert again[:2] == (409, "conflict")


def test_what_is_not_there_is_not_ignored(bucket: Api):
    put(bucket, "a")
    assert bucket("GET", OBJECTS, matchGlob="*")[0] == 501
    assert bucket("POST", UPLOAD, b"", name="b", predefinedAcl="publicRead")[0] == 501
    rewrite = f"{OBJECTS}/a/rewriteTo/b/lab/o/c"
    assert bucket("POST", rewrite, {}, destinationPredefinedAcl="publicRead")[0] == 501
    assert bucket("POST", f"{OBJECTS}/a/copyTo/b/lab/o/c", {})[0] == 501


def test_objects_survive_a_restart_and_leftovers_do_not(tmp_path: Path):
    def opened(use: Callable[[Api], None]) -> None:
        cloud = open_cloud(Settings(), tmp_path, ManualClock())
        use(Api(cloud))
        cloud.close()

    def fill(api: Api) -> None:
        api.ok("POST", "/storage/v1/b", {"name": "lab"}, project="demo-project")
        versioned(api)
        put(api, "a", b"one")
        put(api, "a", b"two" * 1000)
        put(api, "b", b"gone")
        generation = api.ok("GET", f"{OBJECTS}/b")["generation"]
        api.ok("DELETE", f"{OBJECTS}/b", generation=generation)

    opened(fill)
    files = tmp_path / "objects"
    assert len(list(files.iterdir())) == 2
    (files / "left-by-a-killed-upload").write_bytes(b"x")

    def look(api: Api) -> None:
        api.ok("GET", f"{OBJECTS}/a", alt="media")
        assert api.content == b"two" * 1000
        assert len(api.ok("GET", OBJECTS, versions="true")["items"]) == 2
        assert api.ok("GET", "/storage/v1/b/lab/iam")["bindings"]

    opened(look)
    assert len(list(files.iterdir())) == 2
