"""Many calls in one HTTP request, as text: what a call costs here is mostly its HTTP request.

https://cloud.google.com/compute/docs/api/how-tos/batch: multipart/mixed, each part an HTTP request
of its own with its own answer; for the rate limit each counts.
"""

from collections.abc import Iterable

BOUNDARY = "muster_calls"
CONTENT_TYPE = f"multipart/mixed; boundary={BOUNDARY}"
MOST = 1000


def request(calls: Iterable[tuple[str, str]]) -> bytes:
    """The body of a request with calls (verb, path with query); each is known by its place."""
    parts = [
        f"--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
        f"{verb} {path} HTTP/1.1\r\n\r\n"
        for number, (verb, path) in enumerate(calls)
    ]
    return "\r\n".join([*parts, f"--{BOUNDARY}--\r\n"]).encode()


def answers(content_type: str, content: bytes) -> dict[int, tuple[int, bytes]]:
    """Place of a call -> HTTP status and body of its answer; some may be missing.

    Raises:
        ValueError: it is no answer to a batch.

    """
    kind, _, boundary = content_type.partition("boundary=")
    if not kind.startswith("multipart/mixed") or not boundary:
        raise ValueError(f"no multipart/mixed but {content_type}")
    found: dict[int, tuple[int, bytes]] = {}
    for part in content.split(b"--" + boundary.strip('"').encode())[1:-1]:
        outer, _, inner = part.partition(b"\r\n\r\n")
        head, _, body = inner.partition(b"\r\n\r\n")
        # Content-ID: <response-7>; HTTP/1.1 200 OK
        number = outer.partition(b"<response-")[2].partition(b">")[0]
        found[int(number)] = int(head.split(b" ", 2)[1]), body
    return found
