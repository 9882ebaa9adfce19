# SPDX-License-Identifier: Apache-2.0
"""Files in buckets of Google Cloud Storage, by its JSON API, and who asks for them."""

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from muster_models import paths
from muster_models.digests import Digest
from muster_models.download import Login, Source, patiently
from muster_models.errors import ModelsError

TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (a name)
"""Variable of Google's own Pulumi provider; one process gives it to another in it too."""

_ADDRESS = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?")
_METADATA_S = 2.0
_GCLOUD_S = 30.0


class Object(NamedTuple):
    """A file of a bucket: its path below the prefix, and where it is."""

    path: str
    source: Source


def is_address(text: str) -> bool:
    """Whether this names something in a bucket."""
    return text.startswith("gs://")


def objects(address: str, login: Login) -> list[Object]:
    """Return the files below gs://BUCKET/PREFIX, or the one that has this name.

    Raises:
        ModelsError: there are none, Google refuses or fails, or one can't have its name here.

    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ModelsError(f"{address} is no address in a bucket; write gs://BUCKET/PREFIX")
    try:
        found = list(_found(match[1], match[2] or "", address, login))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelsError(
            f"{address}: what {_endpoint()} answers is no list of files ({error}); look at the "
            "proxy on the way to it (https_proxy), and run it again"
        ) from error
    if not found:
        raise ModelsError(
            f"{address} has no files; `gcloud storage ls {address}` shows what you may see there"
        )
    paths.refuse_file_and_folder([item.path for item in found], address)
    return sorted(found)


def _found(bucket: str, prefix: str, address: str, login: Login) -> Iterator[Object]:
    folder = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
    for item in _listing(bucket, prefix, login):
        name = str(item["name"])
        if name == prefix or name.startswith(folder):
            # A name that ends so is a folder that somebody made in the console.
            if name.endswith("/"):
                continue
            path = name.rpartition("/")[2] if name == prefix else name[len(folder) :]
            yield Object(paths.checked(path, address), _source(bucket, item, login))


def _endpoint() -> str:
    # The variable of Google's own client libraries.
    return os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com").rstrip("/")


def _listing(bucket: str, prefix: str, login: Login) -> Iterator[dict[str, Any]]:
    page = ""
    fields = "nextPageToken,items(name,size,md5Hash,generation)"
    while True:
        words = {"prefix": prefix, "fields": fields} | ({"pageToken": page} if page else {})
        url = f"{_endpoint()}/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(words)}"
        request = urllib.request.Request(url, headers=login.headers())  # noqa: S310
        answer = json.loads(patiently(request, f"gs://{bucket}/{prefix}"))
        yield from answer.get("items", [])
        page = answer.get("nextPageToken", "")
        if not page:
            return


def _source(bucket: str, item: Mapping[str, Any], login: Login) -> Source:
    name = urllib.parse.quote(str(item["name"]), safe="")
    # Of this generation: what is put in its place meanwhile is another file.
    url = f"{_endpoint()}/storage/v1/b/{bucket}/o/{name}?generation={item['generation']}&alt=media"
    # Objects that were composed of parts have no MD5.
    md5 = item.get("md5Hash")
    digest = Digest("md5", base64.b64decode(md5).hex()) if md5 else None
    # As it is stored, which is what size and digest are of: Google unpacks for who takes nothing
    # packed (https://cloud.google.com/storage/docs/transcoding).
    return Source(url, digest, int(item["size"]), {"Accept-Encoding": "gzip"}, login)


def login() -> Login:
    """Return that of who runs this, which is renewed while they are logged in."""
    return Login(token(), token)


def token() -> str | None:
    """Return an access token of who runs this; None: Google is asked without one.

    It comes from the person's gcloud, if they are logged in there, else from the metadata server of
    a VM, which answers those whom the VM lets ask.

    Raises:
        ModelsError: what the variable holds can be none.

    """
    if given := os.environ.get(TOKEN, "").strip():
        if not (given.isascii() and given.isprintable()):
            raise ModelsError(
                f"{TOKEN} holds no access token; set it to what `gcloud auth print-access-token` "
                "prints"
            )
        return given
    return _of_gcloud() or _of_vm()


def _of_gcloud() -> str | None:
    if shutil.which("gcloud") is None:
        return None
    try:
        done = subprocess.run(
            ["gcloud", "auth", "print-access-token", "--quiet"],
            capture_output=True,
            text=True,
            timeout=_GCLOUD_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _of_vm() -> str | None:
    # The variable of Google's own client libraries.
    host = os.environ.get("GCE_METADATA_HOST", "169.254.169.254")
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    try:
        # Never through a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_METADATA_S) as response:
            answer: dict[str, str] = json.loads(response.read())
            return answer.get("access_token")
    except (OSError, ValueError):
        return None
