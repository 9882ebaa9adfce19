"""Servers that are out of order: one that never answers, one that answers what it is told."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def silent_server() -> Iterator[str]:
    """Yield `HOST:PORT` of a server that takes connections and requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


Answer = tuple[int, str]
"""Status and body."""


@contextmanager
def told_server(answers: list[Answer], retry_after_s: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Yield `HOST:PORT` of a server, and what it was asked.

    It takes the first of the answers away each time, and keeps the last one.
    """
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            paths.append(self.path)
            self.send_response(status)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Retry-After", str(retry_after_s))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # `shutdown` waits for the next time that it looks for one.
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}", paths
    server.shutdown()
    server.server_close()
