"""All three kinds of uploads of objects.

https://cloud.google.com/storage/docs/uploads-downloads#uploads: media (the body is the content),
multipart (metadata and content as multipart/related), resumable (metadata first; the answer has an
address, which then gets the content, as a whole or in parts).
"""

import json
import re
import secrets
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from muster_sandbox.fakecloud import checking, descriptions
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Reply, Resource
from muster_sandbox.fakecloud.services.storage import buckets, objects

BOUNDARY = re.compile(r"""boundary=(?:"([^"]+)"|'([^']+)'|([^;\s]+))""", re.IGNORECASE)
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(slots=True)
class Session:
    """A resumable upload in progress; it ends with fakecloud, the real one after a week."""

    bucket: str
    name: str
    metadata: Resource
    # The preconditions of the call that started it; they are checked when the object is made.
    query: dict[str, str]
    content: bytearray = field(default_factory=bytearray)


_sessions: WeakKeyDictionary[Cloud, dict[str, Session]] = WeakKeyDictionary()


@handler("storage.objects.insert")
def insert(call: Call) -> Resource | Reply:
    """Make an object, or start or continue a resumable upload."""
    buckets.existing(call)
    buckets.refuse_acls(call)
    if call.query.get("upload_id"):
        return _resume(call, call.query["upload_id"])
    kind = call.query.get("uploadType", "media" if call.media == "upload" else "")
    if kind == "media":
        given: Resource = {"contentType": _content_type(call)}
        return _store(call, given, call.content)
    if kind == "multipart":
        text, media_type, content = _parts(call)
        given = {"contentType": media_type, **_metadata(call, text)}
        return _store(call, given, content)
    if kind == "resumable":
        return _begin(call)
    raise invalid(f"Upload type '{kind}': it must be media, multipart or resumable.")


def _content_type(call: Call) -> str:
    return call.headers.get("content-type", "") or "application/octet-stream"


def _name(call: Call, metadata: Resource) -> str:
    name = call.query.get("name") or metadata.get("name") or ""
    # https://cloud.google.com/storage/docs/objects#naming
    if not 0 < len(name.encode()) <= 1024 or "\n" in name or "\r" in name or name in {".", ".."}:
        raise ApiError(400, "required" if not name else "invalid", f"Invalid object name: '{name}'")
    return str(name)


def _metadata(call: Call, text: bytes) -> Resource:
    """The JSON part of an upload, checked like any body."""
    try:
        metadata = json.loads(text or b"{}")
    except ValueError as error:
        raise invalid("The metadata of the upload is not JSON.", "badContent") from error
    if call.cloud.settings.validate:
        method = descriptions.load("storage.v1").methods[call.method]
        checking.check(method, {}, metadata)
    return {key: value for key, value in metadata.items() if value is not None}


def _store(call: Call, given: Resource, content: bytes) -> Resource:
    if "contentEncoding" in call.query:
        given["contentEncoding"] = call.query["contentEncoding"]
    given |= _header_checksums(call)
    return objects.store(call, call.parameters["bucket"], _name(call, given), given, content)


def _header_checksums(call: Call) -> dict[str, str]:
    """X-Goog-Hash: crc32c=...,md5=...; clients send it where metadata went before the content."""
    fields = {"crc32c": "crc32c", "md5": "md5Hash"}
    checksums = {}
    for part in call.headers.get("x-goog-hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name in fields:
            checksums[fields[name]] = value
    return checksums


def _parts(call: Call) -> tuple[bytes, str, bytes]:
    """The metadata, and the content's type and bytes, of a multipart/related body."""
    match = BOUNDARY.search(call.headers.get("content-type", ""))
    if not match:
        raise invalid("Multipart body without a boundary.", "badContent")
    delimiter = b"--" + next(group for group in match.groups() if group).encode()
    # The lines of gcloud's parts end in LF alone, those of others in CRLF, as RFC 2046 wants it.
    end = b"\r\n" if call.content.partition(delimiter)[2].startswith(b"\r\n") else b"\n"
    # A delimiter begins a line, so content that holds the same text is safe.
    pieces = (end + call.content).split(end + delimiter)
    if len(pieces) != 4 or not pieces[3].startswith(b"--"):
        raise invalid("Multipart body that hasn't exactly two parts.", "badContent")
    _, text = _headers(pieces[1], end)
    media_type, content = _headers(pieces[2], end)
    return text, media_type, content


def _headers(part: bytes, end: bytes) -> tuple[str, bytes]:
    """The Content-Type of a part, and its bytes; its lines end in `end`."""
    head, _, content = part.partition(end * 2)
    for line in head.decode("latin-1").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-type":
            return value.strip(), content
    return "application/octet-stream", content


def _begin(call: Call) -> Reply:
    metadata = _metadata(call, call.content)
    media_type = call.headers.get("x-upload-content-type")
    if media_type:
        metadata.setdefault("contentType", media_type)
    bucket, name = call.parameters["bucket"], _name(call, metadata)
    objects.check_creation(call, bucket, name)
    upload_id = secrets.token_urlsafe(48)
    session = Session(bucket, name, metadata, dict(call.query))
    _sessions.setdefault(call.cloud, {})[upload_id] = session
    here = f"http://{call.headers.get('host', '127.0.0.1')}"
    return Reply(
        headers={
            "location": f"{here}/upload/storage/v1/b/{bucket}/o"
            f"?uploadType=resumable&upload_id={upload_id}",
            "x-guploader-uploadid": upload_id,
        }
    )


def _resume(call: Call, upload_id: str) -> Resource | Reply:
    sessions = _sessions.get(call.cloud, {})
    session = sessions.get(upload_id)
    if session is None or session.bucket != call.parameters["bucket"]:
        raise ApiError(404, "notFound", "No such resumable upload.")
    total = _append(call, session)
    if total is None or len(session.content) < total:
        received = len(session.content)
        return Reply(status=308, headers={"range": f"bytes=0-{received - 1}"} if received else {})
    call.query = {**session.query, **call.query}
    answer = _store(call, {**session.metadata, "name": session.name}, bytes(session.content))
    del sessions[upload_id]
    return answer


def _append(call: Call, session: Session) -> int | None:
    """Add the part in the body; return the content's whole length if it is known.

    A repeated part is added once: a client sends a part again if it got no answer.
    """
    header = call.headers.get("content-range")
    if header is None:
        session.content[:] = call.content
        return len(call.content)
    match = CONTENT_RANGE.fullmatch(header)
    if not match:
        raise invalid(f"Invalid Content-Range: {header}")
    first, last, whole = match.groups()
    if first is not None:
        start, received = int(first), len(session.content)
        if int(last) - start + 1 != len(call.content):
            raise invalid(f"Content-Range {header} with {len(call.content)} bytes.")
        if start > received:
            raise ApiError(
                503,
                "backendError",
                "Invalid request.  According to the Content-Range header, the upload offset is "
                f"{start} byte(s), which exceeds already uploaded size of {received} byte(s).",
            )
        session.content[start:] = call.content
    return None if whole == "*" else int(whole)
