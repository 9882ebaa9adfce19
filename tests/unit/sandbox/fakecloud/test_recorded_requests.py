"""Fakecloud refuses no request that Google's own provider made: tests/provider_requests.py."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import pytest
from fakecloud_api import Api
from provider_requests import Recorded, sequences

PROJECT = "/compute/v1/projects/demo-project"
ZONE = f"{PROJECT}/zones/europe-west4-a"
CURRENT = "${current}"
IMAGE = re.compile(r"projects/demo-project/global/images/(?:family/)?(slurm10[\w-]*)")
UPLOAD = (
    b"--x\r\nContent-Type: application/json\r\n\r\n{}\r\n"
    b"--x\r\nContent-Type: text/plain\r\n\r\na file\r\n--x--\r\n"
)


@pytest.mark.parametrize("title", sequences())
def test_what_the_provider_was_recorded_with_is_answered_as_then(api: Api, title: str):
    requests = sequences()[title]
    make_images(api, requests)
    numbers: dict[str, str] = {}
    for request in requests:
        status, answer = replay(api, request, numbers)
        assert status == request.status, f"{request}: {answer}"
        assert status != 200 or "error" not in answer, f"{request}: {answer}"
        if request.verb == "POST" and request.path.endswith("/instanceTemplates"):
            numbers[request.body["name"]] = answer["targetId"]


def replay(api: Api, request: Recorded, numbers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Send a request again; `numbers`: those of templates, by name."""
    path = re.sub(r"\$\{([^}]+)\}", lambda name: numbers[name[1]], request.path)
    options: dict[str, Any] = dict(parse_qsl(request.query))
    if path.startswith("/upload/"):
        options["headers"] = {"content-type": "multipart/related; boundary=x"}
        return api(request.verb, path, UPLOAD, **options)
    return api(request.verb, path, with_current(api, path, request.body), **options)


def with_current(api: Api, path: str, body: Any) -> Any:
    """A body with the fingerprint or etag that its resource has now."""
    if not isinstance(body, dict):
        return body
    resource = re.sub(r"[/:](set\w+|iam)$", "", path)
    if "policy" in body and body["policy"].get("etag") == CURRENT:
        return {**body, "policy": {**body["policy"], "etag": api.read_policy(resource)["etag"]}}
    if body.get("etag") == CURRENT:
        return {**body, "etag": api.read_policy(resource)["etag"]}
    if body.get("labelFingerprint") == CURRENT:
        return {**body, "labelFingerprint": api.ok("GET", resource)["labelFingerprint"]}
    if body.get("fingerprint") == CURRENT:
        return {**body, "fingerprint": api.ok("GET", resource)["metadata"]["fingerprint"]}
    return body


def make_images(api: Api, requests: Sequence[Recorded]) -> None:
    """Make the images that Muster's program builds without the provider."""
    names = set(IMAGE.findall(str([request.body for request in requests])))
    if names:
        api.ok("POST", f"{ZONE}/disks", {"name": "source", "sizeGb": "10"})
    for name in sorted(names):
        body = {"name": name, "family": "slurm10", "sourceDisk": f"{ZONE}/disks/source"}
        api.ok("POST", f"{PROJECT}/global/images", body)
