#!/usr/bin/env python3
"""Serve a trained model from a job, to its owner alone: serve.py start|check|ask.

    serve.py start MODEL [--minutes N]    in the job: answer until told to end, or N minutes
    serve.py check                        in a step of the job: is it well?
    serve.py ask <POINTS.json             in a step of the job: what the model says about points

It needs Python's standard library alone. A port of the node would be open to all who have a job
there, so the server listens at a UNIX socket in a folder that only its owner enters. It has

    GET /health      200 and a few facts, as long as it answers
    POST /predict    {"points": [[...], ...]} -> {"probabilities": [...]}

SIGTERM, which scancel sends, ends it: it answers what it has taken, removes its socket and says so.

Exit code 0: ended as it should, or it is well. 1: an error, in one sentence.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import shutil
import signal
import socket
import socketserver
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

LARGEST_REQUEST = 2**20
"""Bytes of a request; a longer one is refused before it is read."""
REQUEST_S = 10
"""Seconds that a client has for sending its request: SLURM kills the job 30 s after SIGTERM."""
ANSWER_S = 60
"""Seconds that `check` and `ask` wait for an answer."""
LONGEST_SOCKET = 107
"""Bytes in the name of a UNIX socket (unix(7): sun_path, less the null byte)."""
TMP = Path("/tmp")  # noqa: S108 (a folder there is made new, for its owner alone)


class ServeError(Exception):
    """Why it can't go on, in one sentence."""


class Model:
    """A plane, as examples/train leaves it: your own model takes the place of this class.

    Args:
        file: The checkpoint of a training.

    Raises:
        ServeError: it has no weights.

    """

    def __init__(self, file: Path) -> None:
        try:
            self.weights = [float(weight) for weight in _read(file)["weights"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ServeError(
                f"{file} has no model: name the checkpoint of a training, train-JOB.json of "
                "examples/train"
            ) from error
        self.name = file.name

    def predict(self, points: object) -> list[float]:
        """Return for each point the probability that it is on side 1.

        Raises:
            ValueError: these are no points of the model's.

        """
        size = len(self.weights)
        if not isinstance(points, list) or not all(_is_point(point, size) for point in points):
            raise ValueError(f'write {{"points": [[...], ...]}}, with {size} numbers in each point')
        dots = (sum(a * b for a, b in zip(point, self.weights, strict=True)) for point in points)
        return [(1 + math.tanh(dot / 2)) / 2 for dot in dots]


def _is_point(point: object, size: int) -> bool:
    return (
        isinstance(point, list)
        and len(point) == size
        and all(type(value) in (int, float) and math.isfinite(value) for value in point)
    )


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ServeError(
            f"{file} can't be read ({error.strerror}): name a model in a folder that all nodes have"
        ) from error


# -- the server -----------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: "Server"
    timeout = REQUEST_S

    def do_GET(self) -> None:
        """Say that it is well."""
        if self.path != "/health":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is /health, and POST /predict"})
            return
        self._answer(HTTPStatus.OK, self.server.health())

    def do_POST(self) -> None:
        """Answer with what the model says."""
        if self.path != "/predict":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is /predict, and GET /health"})
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._answer(HTTPStatus.LENGTH_REQUIRED, {"error": "send a Content-Length"})
            return
        if int(length) > LARGEST_REQUEST:
            said = f"send at most {LARGEST_REQUEST} bytes at once"
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": said})
            return
        try:
            request = json.loads(self.rfile.read(int(length)))
            points = request.get("points") if isinstance(request, dict) else None
            self._answer(HTTPStatus.OK, {"probabilities": self.server.predict(points)})
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def address_string(self) -> str:
        """Return who asks: at a socket nobody has an address."""
        return "socket"

    def _answer(self, status: HTTPStatus, content: object) -> None:
        body = json.dumps(content).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A thread for each connection; its end waits for those that are open."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, path: Path, model: Model) -> None:
        super().__init__(str(path), Handler)
        self.model, self.began, self.answered = model, time.monotonic(), 0
        self._lock = threading.Lock()

    def health(self) -> dict[str, object]:
        """Return what /health says; seconds since its start."""
        up = round(time.monotonic() - self.began, 1)
        return {"model": self.model.name, "up_seconds": up, "answered": self.answered}

    def predict(self, points: object) -> list[float]:
        """Ask the model, and count it."""
        found = self.model.predict(points)
        with self._lock:
            self.answered += 1
        return found


def start(model: Path, minutes: float) -> None:
    """Answer until SIGTERM, SIGINT or the end of the time; 0 minutes: no end.

    Raises:
        ServeError: it can't start.

    """
    loaded = Model(model)
    folder = private_folder()
    path = folder / "socket"
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise ServeError(f"{path} is too long for the name of a socket: set TMPDIR to a short one")
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        raise ServeError(
            f"{folder} is there already, and may be somebody else's: submit it again, to another "
            "node if that does not help (--exclude)"
        ) from error
    except OSError as error:
        raise ServeError(f"{folder} can't be made ({error.strerror})") from error
    told = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda _number, _frame: told.set())
    try:
        with Server(path, loaded) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            print(f"serves {loaded.name} at {path}", flush=True)
            told.wait(minutes * 60 or None)
            why = "it was told to" if told.is_set() else f"its {minutes:g} minutes are over"
            server.shutdown()
            thread.join()
        print(f"ends, as {why}: {server.answered} requests answered", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def private_folder() -> Path:
    """Return where a server that starts here has its socket: in the job's scratch, else in /tmp.

    Raises:
        ServeError: this is no job.

    """
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise ServeError("this is no job: type sbatch serve.sbatch, or srun --jobid=JOB --overlap")
    scratch = Path(os.environ.get("TMPDIR", ""))
    if scratch.is_absolute() and scratch.name == job:
        return scratch / "serve"
    return TMP / f"serve-{job}"


def found_folder() -> Path:
    """Return where this job's server is; it may have been started with another TMPDIR.

    Raises:
        ServeError: this is no job.

    """
    here = private_folder()
    for folder in (here, TMP / f"serve-{os.environ['SLURM_JOB_ID']}"):
        with contextlib.suppress(OSError):
            if is_own(folder):
                return folder
    return here


def is_own(folder: Path) -> bool:
    """Whether it is a folder of who asks; OSError: it is not there."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


# -- the client -----------------------------------------------------------------------------------


class Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(str(self.path))
        except OSError:
            self.close()
            raise


def request(method: str, path: str, body: bytes | None = None) -> None:
    """Send a request to this job's server, and print the answer.

    Raises:
        ServeError: it does not answer, or refuses.

    """
    folder = found_folder()
    try:
        if not is_own(folder):
            raise ServeError(f"{folder} is somebody else's: end this job, and submit it again")
        connection = Connection(folder / "socket")
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise ServeError(
            f"the server does not answer at {folder / 'socket'} ({error}): the job's output says "
            "whether it has begun, and why it ended; if it serves elsewhere, type unset TMPDIR"
        ) from error
    if answer.status != HTTPStatus.OK:
        raise ServeError(f"the server answered {answer.status}: {content}")
    print(content)


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words say; return the exit code."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start")
    starting.add_argument("model", type=Path)
    starting.add_argument("--minutes", type=float, default=0, help="0: no end of its own")
    commands.add_parser("check")
    commands.add_parser("ask")
    options = parser.parse_args(words)
    does: dict[str, Callable[[], None]] = {
        "start": lambda: start(options.model, options.minutes),
        "check": lambda: request("GET", "/health"),
        "ask": lambda: request("POST", "/predict", sys.stdin.buffer.read()),
    }
    try:
        does[options.command]()
    except ServeError as error:
        print(f"serve.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
