"""A hub on this machine that answers huggingface_hub's client, and can be out of order.

What the client asks of it: https://huggingface.co/docs/hub/api (/api/models/...), and
hf_hub_download's HEAD and GET of /ORG/NAME/resolve/COMMIT/FILE, which redirects files in Git LFS to
another address, as the real one does to its CDN.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 1000
"""Files from this size on are in Git LFS."""
CUT = 600


def commit(number: int) -> str:
    return f"{number:040x}"


@dataclass
class Fault:
    """What goes wrong with requests whose method and path match."""

    matches: str
    status: int = 0
    """0: the answer is cut off, or wrong."""
    times: int = 1
    retry_after_s: int | None = None
    wrong: bool = False
    """Whether the file that comes is another one of the same size."""
    headers: dict[str, str] = field(default_factory=dict)
    """In place of the right ones."""


@dataclass
class SmallHub:
    """Models by name, commit and file; refs; what was asked and what comes wrong."""

    url: str
    models: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    refs: dict[str, dict[str, str]] = field(default_factory=dict)
    licence: str | None = "apache-2.0"
    token: str | None = None
    """Who has none does not see the models."""
    gated: bool = False
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """METHOD PATH of each request."""
    barrier: Barrier | None = None
    """At which requests for a model's listing wait for each other."""

    def put(self, name: str, files: dict[str, bytes], number: int = 1) -> str:
        """Make a commit the newest of a model, and return it."""
        self.models.setdefault(name, {})[commit(number)] = files
        self.refs.setdefault(name, {})["main"] = commit(number)
        return commit(number)

    def downloads(self, file: str) -> int:
        """How often a file was asked for."""
        return sum(
            bool(re.match("GET (/cdn/|.*/resolve/)", line)) and line.endswith(file)
            for line in self.asked
        )

    @property
    def cdn(self) -> str:
        """Another host, to which the client sends no token."""
        return self.url.replace("127.0.0.1", "localhost") + "/cdn"

    def fault(self, line: str) -> Fault | None:
        """Take what goes wrong with this request."""
        for fault in self.faults:
            if fault.times and re.search(fault.matches, line):
                fault.times -= 1
                return fault
        return None


def git_digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def sibling(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "rfilename": path,
        "size": len(content),
        "blobId": git_digest(content),
    }
    if len(content) >= LARGE:
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: SmallHub
    instead: Mapping[str, str] = {}

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        line = f"{self.command} {path}"
        self.hub.asked.append(line)
        fault = self.hub.fault(line)
        self.instead = fault.headers if fault else {}
        if fault and fault.status:
            headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
            self._send(fault.status, b"out of order", headers)
            return
        if self.hub.gated:
            self._send(403, b"", {"X-Error-Code": "GatedRepo"})
            return
        is_cdn = path.startswith("/cdn/")
        if is_cdn and "Authorization" in self.headers:
            self._send(400, b"a token for another host")
            return
        if (
            self.hub.token
            and not is_cdn
            and self.headers.get("Authorization") != f"Bearer {self.hub.token}"
        ):
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
            return
        if match := re.fullmatch(r"/api/models/(.+)/revision/(.+)", path):
            self._listing(match[1], match[2])
        elif match := re.fullmatch(r"/(.+)/resolve/(\w+)/(.+)", path):
            self._file(match[1], match[2], match[3], fault)
        elif match := re.fullmatch(r"/cdn/(.+)@(\w+)/(.+)", path):
            self._send(200, self.hub.models[match[1]][match[2]][match[3]], {}, fault)
        else:
            self._send(404, b"")

    def _listing(self, name: str, wanted: str) -> None:
        if self.hub.barrier:
            self.hub.barrier.wait(timeout=20)
        if name not in self.hub.models:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return
        revision = self.hub.refs[name].get(wanted, wanted)
        if revision not in self.hub.models[name]:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        body = {
            "id": name,
            "sha": revision,
            "siblings": [sibling(*item) for item in self.hub.models[name][revision].items()],
            "cardData": {"license": self.hub.licence} if self.hub.licence else None,
            "tags": [],
        }
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str, revision: str, path: str, fault: Fault | None) -> None:
        content = self.hub.models[name][revision][path]
        headers = {"X-Repo-Commit": revision}
        if len(content) >= LARGE:
            sha256 = hashlib.sha256(content).hexdigest()
            headers |= {
                "X-Linked-Etag": f'"{sha256}"',
                "X-Linked-Size": str(len(content)),
                "Location": f"{self.hub.cdn}/{name}@{revision}/{path}",
            }
            self._send(302, b"", headers)
        else:
            self._send(200, content, headers | {"ETag": f'"{git_digest(content)}"'}, fault)

    def _send(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str] | None = None,
        fault: Fault | None = None,
    ) -> None:
        begin = 0
        if fault and fault.wrong:
            content = bytes(byte ^ 1 for byte in content)
        if status == 200 and (
            asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        ):
            status, begin = 206, int(asked[1])
            headers = {
                **(headers or {}),
                "Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}",
            }
        body = content[begin:]
        self.send_response(status)
        for key, value in {**(headers or {}), **self.instead}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault and not fault.status and not fault.wrong:
            self.wfile.write(body[:CUT])
            self.close_connection = True
            return
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    """Yield a running hub without models."""
    hub = SmallHub("")
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # A client that does not want the rest of an answer closes the connection.
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield hub
    server.shutdown()
    server.server_close()
