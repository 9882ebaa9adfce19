"""Several calls in one HTTP request, as gcloud and google-api-python-client send them.

https://cloud.google.com/compute/docs/api/how-tos/batch: multipart/mixed, each part is an HTTP
request; calls that are answered later (operations.wait) can't be in a batch.
"""

import secrets
from email.message import Message
from email.parser import BytesParser
from http import HTTPStatus

from muster_sandbox.fakecloud import dispatch
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, not_implemented
from muster_sandbox.fakecloud.call import plain
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Reply, Request, reply

MOST = 1000
"""Calls in a batch: the same page."""


@plain("POST", "/batch/compute/v1")
@plain("POST", "/batch/compute/beta")
@plain("POST", "/batch/storage/v1")
def batch(cloud: Cloud, request: Request) -> Reply:
    """Make each call, in order, and answer all; a failed one doesn't stop the others."""
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    outer = BytesParser().parsebytes(head + request.content)
    if outer.get_content_type() != "multipart/mixed" or not outer.is_multipart():
        raise invalid("Failed to parse batch request, error: not multipart/mixed", "badRequest")
    parts = outer.get_payload()
    if len(parts) > MOST:
        raise invalid(f"The batch request could not be processed: more than {MOST} calls")
    boundary = f"batch_{secrets.token_hex(12)}"
    content = b"".join(
        f"--{boundary}\r\n".encode() + _answered(cloud, request, part) + b"\r\n"
        for part in parts
        if isinstance(part, Message)
    )
    return Reply(
        content + f"--{boundary}--\r\n".encode(),
        headers={"content-type": f"multipart/mixed; boundary={boundary}"},
    )


def _answered(cloud: Cloud, outer: Request, part: Message) -> bytes:
    """One call's part of the answer."""
    payload = part.get_payload(decode=True)
    text = payload if isinstance(payload, bytes) else b""
    try:
        answer = dispatch.handle(cloud, _request(outer, text))
    except ApiError as error:
        answer = reply(error.body(), error.status)
    if not isinstance(answer, Reply):
        later = not_implemented("calls in a batch that are answered later")
        answer = reply(later.body(), later.status)
    # The client matches the answers by this: <id> comes back as <response-id>.
    name = part.get("content-id", "").strip("<>")
    lines = [
        "Content-Type: application/http",
        f"Content-ID: <response-{name}>",
        "",
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        *(f"{header}: {value}" for header, value in answer.headers.items()),
        f"content-length: {len(answer.content)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + answer.content


def _request(outer: Request, text: bytes) -> Request:
    line, _, rest = text.lstrip(b"\r\n").partition(b"\n")
    words = line.decode("ascii", errors="replace").split()
    if len(words) < 2:
        raise invalid("Failed to parse batch request, error: no request line", "badRequest")
    message = BytesParser().parsebytes(rest)
    headers = {name.lower(): str(value) for name, value in message.items()}
    body = message.get_payload(decode=True)
    path, _, query = words[1].partition("?")
    return Request(
        verb=words[0],
        path=path,
        query=query,
        # A call without its own credentials has the batch's.
        headers={"authorization": outer.headers.get("authorization", ""), **headers},
        content=body.strip() if isinstance(body, bytes) else b"",
    )
