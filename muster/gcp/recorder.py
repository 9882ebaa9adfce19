"""Stands between a program and Google's APIs, and writes down what they say, without secrets.

Programs find it by the variables GOOGLE_<PRODUCT>_CUSTOM_ENDPOINT, which Google's Pulumi provider
and Muster read. It speaks plain HTTP on 127.0.0.1, and TLS to Google; it has no credentials of its
own: each request goes on with the token that it came with.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import requests
from requests.structures import CaseInsensitiveDict

from muster.gcp import redact

# Product -> the API's address, without its version. The provider's own defaults:
# https://registry.terraform.io/providers/hashicorp/google/latest/docs/guides/provider_reference
PRODUCTS = {
    "CLOUD_BILLING": "https://cloudbilling.googleapis.com/v1/",
    "COMPUTE": "https://compute.googleapis.com/compute/beta/",
    "IAM_BETA": "https://iam.googleapis.com/v1/",
    "IAP": "https://iap.googleapis.com/v1/",
    "RESOURCE_MANAGER": "https://cloudresourcemanager.googleapis.com/v1/",
    "SECRET_MANAGER": "https://secretmanager.googleapis.com/v1/",
    "SERVICE_USAGE": "https://serviceusage.googleapis.com/v1/",
    "STORAGE": "https://storage.googleapis.com/storage/v1/",
}
"""Product, as in the variables' names -> the address of its API."""

Headers = CaseInsensitiveDict[str]
TIMEOUT_S = (30, 300)
"""Seconds to connect to Google, and between two bytes of an answer."""
MOST_TEXT = 2000
"""Characters of an answer that is no JSON, such as a proxy's page."""
# https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1, and what belongs to one connection.
_OF_THE_CONNECTION = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass
class Recorder:
    """Writes lines of JSON: first what is recorded, then each request with its answer."""

    file: IO[str]
    secrets: list[str] = field(default_factory=list)
    """Texts that must not be in the file; tokens are added as they are seen."""
    count: int = 0
    """Requests so far."""
    failure: str = ""
    """Why nothing more is written, such as a full disk; empty: the file is complete."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, **facts: str) -> None:
        """Write the first line."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write({"recording": 1, "time": now, **redact.value(facts, self.secrets)})

    def add(self, came: float, took: float, exchange: dict[str, Any]) -> None:
        """Write a request that came at a time (since the epoch), with its answer `took` later."""
        with self._lock:
            self.count += 1
            at = datetime.fromtimestamp(came, UTC).isoformat(timespec="milliseconds")
            head = {"number": self.count, "time": at, "seconds": round(took, 3)}
            self._write(head | exchange)

    def learn(self, authorization: str) -> None:
        """Remember the token of a request as a secret."""
        token = authorization.partition(" ")[2]
        if token and token not in self.secrets:
            self.secrets.append(token)

    def _write(self, line: Mapping[str, Any]) -> None:
        if self.failure:
            return
        try:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
        except OSError as error:
            # The answer goes to the program all the same: Google has done what it asked for.
            self.failure = (error.strerror or str(error)).lower()


def upstreams(environment: Mapping[str, str]) -> dict[str, str]:
    """Return product -> where its API is: where the environment says, else at Google."""
    return {
        product: environment.get(_variable(product)) or address
        for product, address in PRODUCTS.items()
    }


def _variable(product: str) -> str:
    return f"GOOGLE_{product}_CUSTOM_ENDPOINT"


def _parts(address: str) -> tuple[str, str]:
    """The address of an API without its version, and its version."""
    base, _, version = address.rstrip("/").rpartition("/")
    return f"{base}/", version


@contextmanager
def recording(
    recorder: Recorder, environment: Mapping[str, str] = os.environ
) -> Iterator[dict[str, str]]:
    """Serve until the end of the block; yields the variables for the program to be recorded."""
    addresses = upstreams(environment)
    bases = {product.lower(): _parts(address)[0] for product, address in addresses.items()}
    server = _Server(("127.0.0.1", 0), _handler(recorder, bases))
    # `shutdown` waits for the next time that it looks for one.
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    direct = ",".join(filter(None, [environment.get("NO_PROXY", ""), "127.0.0.1"]))
    try:
        yield {
            **{
                _variable(product): f"{url}/{product.lower()}/{_parts(address)[1]}/"
                for product, address in addresses.items()
            },
            "NO_PROXY": direct,
            "no_proxy": direct,
        }
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show an error, unless it is that a program has gone, which wants no answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(recorder: Recorder, bases: Mapping[str, str]) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests; `bases`: first part of the path -> address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body in one packet: else the client's TCP waits 40 ms for the second one.
        wbufsize = -1

        def setup(self) -> None:
            super().setup()
            self.session = requests.Session()
            # Else a .netrc would replace the caller's token.
            self.session.auth = _as_it_came

        def finish(self) -> None:
            self.session.close()
            super().finish()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
            """Say nothing: the terminal is the recorded program's."""

        def _answer(self) -> None:
            came, begin = time.time(), time.monotonic()
            content = self._content()
            recorder.learn(self.headers.get("Authorization", ""))
            url = _target(self.path, bases)
            if url is None:
                status, headers, answer = _refusal(404, f"no API of Google has {self.path}")
                url = self.path
            else:
                status, headers, answer = self._forward(url, content)
            exchange = _exchange(
                self.command,
                url,
                (self.headers.get("Content-Type", ""), content),
                (status, headers.get("Content-Type", ""), answer),
                recorder.secrets,
            )
            recorder.add(came, time.monotonic() - begin, exchange)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, _here(value, self.headers["Host"], bases))
            if status not in (204, 304):
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

        def _forward(self, url: str, content: bytes) -> tuple[int, Headers, bytes]:
            kept = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in _OF_THE_CONNECTION
            }
            try:
                answer = self.session.request(
                    self.command,
                    url,
                    data=content,
                    headers={**kept, "Accept-Encoding": "identity"},
                    timeout=TIMEOUT_S,
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                # Retried by provider and Muster, as they would retry a lost connection.
                return _refusal(502, f"no answer: {error}")
            headers = Headers(
                (name, value)
                for name, value in answer.headers.items()
                if name.lower() not in {*_OF_THE_CONNECTION, "date", "server"}
            )
            return answer.status_code, headers, answer.content

        def _content(self) -> bytes:
            """The request's body; uploads come in chunks."""
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            # Trailers, up to an empty line.
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)

    return Handler


def _as_it_came(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _target(path: str, bases: Mapping[str, str]) -> str | None:
    """The address that a path here stands for; None: none."""
    first, _, rest = path.lstrip("/").partition("/")
    if first in bases:
        return bases[first] + rest
    if first == "upload":
        # Google's clients upload to the root of the host, whatever the API's address is.
        host = urlsplit(bases["storage"])
        return f"{host.scheme}://{host.netloc}/upload/{rest}"
    return None


def _here(value: str, host: str, bases: Mapping[str, str]) -> str:
    """The value of an answer's header; one that names Storage's host (Location) names this one."""
    storage = urlsplit(bases["storage"])
    return value.replace(f"{storage.scheme}://{storage.netloc}/upload/", f"http://{host}/upload/")


def _refusal(status: int, message: str) -> tuple[int, Headers, bytes]:
    """An answer of the recorder itself, in the form of Google's errors."""
    body = {"error": {"code": status, "message": f"muster cloud record: {message}"}}
    return status, Headers({"Content-Type": "application/json"}), json.dumps(body).encode()


def _exchange(
    verb: str,
    url: str,
    asked: tuple[str, bytes],
    answered: tuple[int, str, bytes],
    secrets: list[str],
) -> dict[str, Any]:
    """What is written of a request.

    `asked` is its body with the type before it, `answered` that of the answer behind its status.
    """
    address = urlsplit(url)
    status, kind, content = answered
    return {
        "verb": verb,
        "url": redact.text(address._replace(query="").geturl(), secrets),
        "query": redact.query(parse_qsl(address.query, keep_blank_values=True), secrets),
        "body": _shown(*asked, secrets),
        "status": status,
        "answer": _shown(kind, content, secrets, is_error=status >= 400),
    }


def _shown(kind: str, content: bytes, secrets: list[str], *, is_error: bool = False) -> Any:
    """A body without secrets: JSON as it is, of an error's page the begin, of others the size."""
    if not content:
        return None
    if kind.startswith("application/json"):
        try:
            return redact.value(json.loads(content), secrets)
        except ValueError:
            return f"({len(content)} bytes that are no JSON)"
    if is_error and kind.startswith(("text/html", "text/plain")):
        return redact.text(content.decode(errors="replace"), secrets)[:MOST_TEXT]
    return f"({len(content)} bytes of {kind or 'no type'})"
