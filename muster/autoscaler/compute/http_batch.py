"""Many calls in one HTTP request, as text: most of a call's CPU time goes into its HTTP request.

https://cloud.google.com/compute/docs/api/how-tos/batch: multipart/mixed, each part is an HTTP
request with its own answer. Each part counts for the rate limit.
"""

from collections.abc import Iterable

BOUNDARY = "muster_calls"
CONTENT_TYPE = f"multipart/mixed; boundary={BOUNDARY}"


def request(calls: Iterable[tuple[str, str]]) -> bytes:
    """The body of a request with calls (verb, path with query); Content-ID is a call's index."""
    parts = [
        f"--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
        f"{verb} {path} HTTP/1.1\r\n\r\n"
        for number, (verb, path) in enumerate(calls)
    ]
    return "\r\n".join([*parts, f"--{BOUNDARY}--\r\n"]).encode()


def answers(content_type: str, content: bytes) -> dict[int, tuple[int, bytes]]:
    """Index of a call -> HTTP status and body of its answer; some may be missing.

    Raises:
        ValueError: this is not an answer to a batch.

    """
    kind, _, boundary = content_type.partition("boundary=")
    if not kind.startswith("multipart/mixed") or not boundary:
        raise ValueError(f"not multipart/mixed but {content_type}")
    answered: dict[int, tuple[int, bytes]] = {}
    for part in content.split(b"--" + boundary.strip('"').encode())[1:-1]:
        outer, _, inner = part.partition(b"\r\n\r\n")
        head, _, body = inner.partition(b"\r\n\r\n")
        # Content-ID: <response-7>; HTTP/1.1 200 OK
        number = outer.partition(b"<response-")[2].partition(b">")[0]
        answered[int(number)] = int(head.split(b" ", 2)[1]), body
    return answered
