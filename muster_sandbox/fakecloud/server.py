"""The cloud over HTTP on 127.0.0.1."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from muster_sandbox.fakecloud import dispatch, metadata, routes
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.backends import Backend
from muster_sandbox.fakecloud.clock import Clock, LoopClock
from muster_sandbox.fakecloud.cloud import Cloud, Settings
from muster_sandbox.fakecloud.http import Answer, Deferred, Reply, Request, reply

T = TypeVar("T")
log = logging.getLogger(__name__)

VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
STOP_SECONDS = 10
"""Timeout of calls that the cloud's thread answers immediately."""
END_SECONDS = 150
"""Timeout of its end: it waits for machines that shut down, and removes all machines."""


def application(cloud: Cloud) -> Starlette:
    """The ASGI application: every path goes to the cloud."""

    async def answer(http: HttpRequest) -> Response:
        request = Request(
            verb=http.method,
            path=http.scope["raw_path"].decode("latin-1"),
            query=http.scope["query_string"].decode("latin-1"),
            headers={k.decode("latin-1"): v.decode("latin-1") for k, v in http.scope["headers"]},
            content=await http.body(),
        )
        method = _method_of(request) if cloud.faults.waiting else ""
        if method:
            await _passed(cloud, cloud.faults.delay_seconds(method))
        answered = dispatch.handle(cloud, request)
        if isinstance(answered, Deferred):
            answered = reply(await _awaited(answered))
        if method and cloud.faults.drops(method):
            http.scope["muster.transport"].abort()
        await _passed(cloud, cloud.settings.answer_seconds)
        return _response(answered, cloud.clock.now())

    return Starlette(routes=[Route("/{path:path}", answer, methods=VERBS)])


def _method_of(request: Request) -> str:
    """The method's id, "batch" of many calls in one, or "" where no description has the path."""
    if request.path.startswith("/batch/"):
        return "batch"
    try:
        return routes.find(request.verb, request.path).method.id
    except ApiError:
        return ""


async def _passed(cloud: Cloud, seconds: float) -> None:
    """Return when so many seconds of the cloud's clock have passed."""
    if seconds:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The caller may have gone, and its future with it.
        cloud.clock.later(seconds, lambda: None if future.done() else future.set_result(None))
        await future


async def _awaited(deferred: Deferred) -> Answer:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    # The caller may have gone, and its future with it.
    deferred.then(lambda value: None if future.done() else future.set_result(value))
    return await future


def _response(answer: Reply, now: float) -> Response:
    headers = {**answer.headers, "date": formatdate(now, usegmt=True)}
    return Response(answer.content, answer.status, headers)


def _protocol(cloud: Cloud) -> type[HttpToolsProtocol]:
    """Uvicorn's HTTP, but CONNECT is refused: as HTTPS_PROXY this server proves that no call left.

    A client with this server as its proxy asks it for each host that its settings don't redirect to
    fakecloud; these hosts are recorded.
    """

    class Protocol(HttpToolsProtocol):
        fresh = True

        def on_message_begin(self) -> None:
            super().on_message_begin()
            # For faults that lose an answer: no ASGI message closes a connection.
            self.scope["muster.transport"] = self.transport  # type: ignore[typeddict-unknown-key]

        def data_received(self, data: bytes) -> None:
            if self.fresh and data.startswith(b"CONNECT "):
                host = data.split(b" ", 2)[1].decode("latin-1")
                log.warning("refused a connection to %s", host)
                cloud.refused_hosts.append(host)
                self.transport.write(
                    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                self.transport.close()
                return
            self.fresh = False
            super().data_received(data)

    return Protocol


class PortError(Exception):
    """A port can't be bound; the message says which and why."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 takes a free one."""
    # With the protocol named asyncio sets TCP_NODELAY, without which an answer may take 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise PortError(f"can't listen on {host}:{port}: {error.strerror}") from error
    bound.listen(2048)
    return bound


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: they would end the process before the cloud ends."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """A cloud, its APIs and its metadata server on one event loop.

    `url` is the address of the APIs, `metadata_url` that of the metadata server, `machines_url`
    where machines find the APIs. `run` serves until `stop`; `start` does so in a thread. From other
    threads use `do`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        folder: Path | None = None,
        backend: Callable[[Cloud, str], Backend] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        metadata_host: str = "127.0.0.1",
        metadata_port: int = 0,
        clock: Callable[[asyncio.AbstractEventLoop], Clock] = LoopClock,
    ) -> None:
        """Take the ports; `backend` is made with the cloud and `machines_url`.

        `clock` is made with the event loop; its time is also that of the answers' Date.

        Raises:
            PortError: a port can't be bound.

        """
        apis = [listen(host, port)]
        self.port = apis[0].getsockname()[1]
        self._sockets = [apis, []]
        try:
            if metadata_host != host:
                # Machines have their own addresses; 127.0.0.1 would be the machine itself.
                apis.append(listen(metadata_host, self.port))
            self._sockets[1].append(listen(metadata_host, metadata_port))
        except PortError:
            for api in apis:
                api.close()
            raise
        self.metadata_port = self._sockets[1][0].getsockname()[1]
        self.url = f"http://{host}:{self.port}"
        self.machines_url = f"http://{metadata_host}:{self.port}"
        self.metadata_url = f"http://{metadata_host}:{self.metadata_port}"
        self.loop = asyncio.new_event_loop()
        make = (lambda cloud: backend(cloud, self.machines_url)) if backend else None
        self.cloud = dispatch.open_cloud(settings, folder, clock(self.loop), make)
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._servers = [
            # The APIs send the cloud's own Date.
            self._server(application(self.cloud), _protocol(self.cloud), date_header=False),
            self._server(metadata.application(self.cloud), HttpToolsProtocol),
        ]

    @staticmethod
    def _server(
        app: Starlette, protocol: type[HttpToolsProtocol], *, date_header: bool = True
    ) -> uvicorn.Server:
        return _Uvicorn(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                date_header=date_header,
                access_log=False,
                log_level="warning",
                timeout_graceful_shutdown=1,
            )
        )

    def run(self) -> None:
        """Serve until `stop`, or until SIGINT or SIGTERM if this is the main thread."""
        asyncio.set_event_loop(self.loop)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.loop.add_signal_handler(number, self._ask_to_end)
        try:
            self.loop.run_until_complete(self._serve())
            self.loop.run_until_complete(self._cancel())
        finally:
            self.cloud.close()
            self.loop.close()

    async def _serve(self) -> None:
        pairs = zip(self._servers, self._sockets, strict=True)
        serving = [asyncio.create_task(server.serve(sockets=bound)) for server, bound in pairs]
        # The sockets are bound: a connection that comes before uvicorn accepts is kept waiting.
        self._started.set()
        await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
        self._ask_to_end()
        await asyncio.gather(*serving)

    async def _cancel(self) -> None:
        """Cancel the calls that uvicorn has left, which a fault makes slow; end its connections."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for server in self._servers:
            for connection in list(server.server_state.connections):
                connection.transport.abort()
        # The loop closes their sockets in its next turn.
        await asyncio.sleep(0)

    def _ask_to_end(self) -> None:
        self.cloud.end_waits()
        for server in self._servers:
            server.should_exit = True

    def start(self) -> "Server":
        """Serve in a thread; requests are accepted when this returns."""
        self._thread = threading.Thread(target=self.run, name="fakecloud", daemon=True)
        self._thread.start()
        if not self._started.wait(STOP_SECONDS):
            raise TimeoutError("fakecloud's thread doesn't start to serve")
        return self

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self._ask_to_end)
        if self._thread:
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                raise TimeoutError("fakecloud's thread doesn't end")

    def do(self, work: Callable[[Cloud], T]) -> T:
        """Run a function on the cloud's thread and return its result."""
        future: Future[T] = Future()

        def task() -> None:
            try:
                future.set_result(work(self.cloud))
            except BaseException as error:
                future.set_exception(error)

        self.loop.call_soon_threadsafe(task)
        return future.result(STOP_SECONDS)
