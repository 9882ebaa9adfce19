"""Downloads by HTTP: whole and checked, or not there; servers that are out of order."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

CONTENT = os.urandom(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MARK = hashlib.sha256(f"train.tar {SHA256}".encode()).hexdigest()[:32]
PART = f".{MARK}.{os.geteuid()}.part"


class FileServer:
    """One file, and what goes wrong with the next requests for it."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.faults: list[Any] = []
        """Of the next requests: a status, ("cut", BYTES), "no range", ("no range", BYTES), an Event
        to wait for."""
        self.retry_after: str | None = None
        self.ranges: list[str | None] = []
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, int):
            request.send_response(fault)
            if self.retry_after:
                request.send_header("Retry-After", self.retry_after)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        begin = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0  # type: ignore[index]
        if fault == "no range" or (isinstance(fault, tuple) and fault[0] == "no range"):
            begin = 0
        elif asked and begin >= len(self.content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.content)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        body = self.content[begin:]
        request.send_response(206 if begin else 200)
        if begin:
            size = len(self.content)
            request.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if isinstance(fault, tuple):
            body = body[: fault[1]]
        if isinstance(fault, Event):
            request.wfile.write(body[:100_000])
            request.wfile.flush()
            fault.wait(30)
            return
        request.wfile.write(body)


@pytest.fixture
def server() -> Iterator[FileServer]:
    file_server = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file_server.answer(self)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    file_server.url = f"http://127.0.0.1:{http.server_address[1]}/sets/train.tar?key=secret"
    Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    yield file_server
    http.shutdown()
    http.server_close()


@pytest.fixture
def stage(server: FileServer, tmp_path: Path, pauses: list[float]) -> Callable[..., int]:
    """Bring the file to the folder `data`; return the exit code."""
    from muster_models.data import main

    return lambda sha256=SHA256: main(
        ["stage", server.url, str(tmp_path / "data"), "--sha256", sha256]
    )


def there(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "data").iterdir())


def test_a_file_comes_whole(stage: Callable[..., int], tmp_path: Path) -> None:
    assert stage() == 0
    assert (tmp_path / "data/train.tar").read_bytes() == CONTENT
    assert there(tmp_path) == ["train.tar"]


def test_a_file_that_is_there_does_not_come_again(
    stage: Callable[..., int], server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage() == stage() == 0
    assert len(server.ranges) == 1
    assert (
        capsys.readouterr().out.splitlines()[-1].endswith("1 files, 293.0 KiB; 0 of them came now")
    )


def test_a_connection_that_breaks_goes_on_where_it_was(
    stage: Callable[..., int], server: FileServer, tmp_path: Path
) -> None:
    server.faults = [("cut", 100_000), ("cut", 100_000)]
    assert stage() == 0
    assert server.ranges == [None, "bytes=100000-", "bytes=200000-"]
    assert (tmp_path / "data/train.tar").read_bytes() == CONTENT


def test_a_connection_that_falls_silent_goes_on_where_it_was(
    stage: Callable[..., int], server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster_models import download

    monkeypatch.setattr(download, "SILENCE_S", 0.3)
    silent = Event()
    server.faults = [silent]
    assert stage() == 0
    silent.set()
    assert server.ranges == [None, "bytes=100000-"]
    assert (tmp_path / "data/train.tar").read_bytes() == CONTENT


def test_progress_gives_a_bad_connection_more_tries(
    stage: Callable[..., int], server: FileServer
) -> None:
    server.faults = [("cut", 20_000)] * 14
    assert stage() == 0


def test_what_a_server_without_parts_sends_again_is_no_progress(
    stage: Callable[..., int], server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = [("no range", size) for size in (1000, 20_000, *[19_000, 20_000] * 5)]
    assert stage() == 1
    said = capsys.readouterr().err
    assert "the connection ended after 19000 of 300000 bytes, 6 times in a row" in said
    assert len(server.ranges) == 7


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_fails_for_a_while_is_asked_again(
    stage: Callable[..., int], server: FileServer, status: int, pauses: list[float]
) -> None:
    server.faults = [status] * 5
    assert stage() == 0
    assert pauses == [1, 2, 4, 8, 16]


def test_a_server_that_goes_on_failing_is_one_sentence_and_nothing_is_lost(
    stage: Callable[..., int],
    server: FileServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.faults = [("cut", 1000), *[500] * 6]
    assert stage() == 1
    [said] = capsys.readouterr().err.splitlines()
    assert "train.tar: the server answers 500, 6 times in a row; run it again later" in said
    assert "the 1000 bytes that have come stay" in said
    assert "secret" not in said
    assert "train.tar" not in there(tmp_path)
    assert stage() == 0
    assert server.ranges[-1] == "bytes=1000-"
    assert there(tmp_path) == ["train.tar"]


def test_a_server_says_how_long_to_wait(
    stage: Callable[..., int],
    server: FileServer,
    pauses: list[float],
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.faults, server.retry_after = [429], "7"
    assert stage() == 0
    assert pauses == [7]
    server.content, server.faults, server.retry_after = b"x", [429], "3600"
    assert stage(hashlib.sha256(b"x").hexdigest()) == 1
    said = capsys.readouterr().err
    assert "the server answers 429 and asks for 3600 s of pause; run it again after that" in said
    assert pauses == [7]


def test_a_wrong_digest_is_refused_and_nothing_stays(
    stage: Callable[..., int],
    server: FileServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert stage("0" * 64) == 1
    said = capsys.readouterr().err
    assert f"has the sha256 {SHA256} and not {'0' * 64}" in said
    assert there(tmp_path) == []


def test_a_part_of_another_file_is_not_continued(
    stage: Callable[..., int], server: FileServer, tmp_path: Path
) -> None:
    """The server had another file of this name when its first part came."""
    server.content, server.faults = b"old" * 100_000, [("cut", 5000), *[500] * 6]
    assert stage() == 1
    server.content = CONTENT
    assert stage() == 0
    assert (tmp_path / "data/train.tar").read_bytes() == CONTENT


def test_a_file_may_have_the_longest_name_of_the_file_system(
    server: FileServer, tmp_path: Path, pauses: list[float]
) -> None:
    from muster_models.data import main

    name = "n" * 255
    words = ["stage", server.url.replace("train.tar", name), str(tmp_path), "--sha256", SHA256]
    server.faults = [("cut", 1000), *[500] * 6]
    assert main(words) == 1
    assert main(words) == 0
    assert server.ranges[-1] == "bytes=1000-"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_two_files_of_the_same_content_do_not_meet(
    stage: Callable[..., int], server: FileServer, tmp_path: Path
) -> None:
    server.faults = [("cut", 1000), *[500] * 6]
    assert stage() == 1
    server.url = server.url.replace("train.tar", "copy.tar")
    assert stage() == 0
    assert (tmp_path / "data/copy.tar").read_bytes() == CONTENT
    assert there(tmp_path) == sorted([PART, "copy.tar"])


def test_a_server_that_knows_no_parts_sends_it_all(
    stage: Callable[..., int], server: FileServer, tmp_path: Path
) -> None:
    server.faults = [("cut", 5000), "no range"]
    assert stage() == 0
    assert (tmp_path / "data/train.tar").read_bytes() == CONTENT


def test_a_part_that_is_whole_already_needs_no_more(
    stage: Callable[..., int], server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / PART).write_bytes(CONTENT)
    assert stage() == 0
    assert there(tmp_path) == ["train.tar"]


def test_what_another_user_has_begun_and_left_is_in_nobody_s_way(
    stage: Callable[..., int],
    server: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a killed run leaves, nobody else may open; the tests' root may."""
    server.faults = [("cut", 1000), *[500] * 6]
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert stage() == 1
    [left] = there(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    assert stage() == 0
    assert server.ranges[-1] is None
    assert there(tmp_path) == [left, "train.tar"]
    assert (tmp_path / "data" / left).stat().st_size == 1000


@pytest.mark.parametrize("name", ["part", "lock"])
def test_a_link_that_somebody_has_put_there_is_not_followed(
    stage: Callable[..., int], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody can tell the names, and a folder may be one that others write to."""
    (tmp_path / "data").mkdir()
    own = tmp_path / "own"
    link = tmp_path / "data" / {"part": PART, "lock": f"{PART}.lock"}[name]
    link.symlink_to(own)
    assert stage() == 1
    assert f"error: {link}: " in capsys.readouterr().err
    assert not own.exists()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (404, "is not there (404); correct the address"),
        (403, "the server refuses it (403)"),
        (418, "the server answers 418"),
    ],
)
def test_a_refusal_is_one_sentence(  # noqa: PLR0917
    stage: Callable[..., int],
    server: FileServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
    says: str,
) -> None:
    server.faults = [status]
    assert stage() == 1
    [said] = capsys.readouterr().err.splitlines()
    assert says in said
    assert len(server.ranges) == 1
    assert there(tmp_path) == []


def test_nobody_listens(
    tmp_path: Path, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_models.data import main

    words = ["stage", "http://127.0.0.1:9/file", str(tmp_path), "--sha256", SHA256]
    assert main(words) == 1
    assert "the server can't be reached" in capsys.readouterr().err
    assert len(pauses) == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["http://127.0.0.1:9/file"], "has to be checked; give the digest"),
        (["http://127.0.0.1:9/file", "--sha256", "abc"], "is no SHA-256"),
        (["http://127.0.0.1:9/", "--sha256", SHA256], "can't be a path below a folder"),
        (["http://127.0.0.1:9/a/..", "--sha256", SHA256], "can't be a path below a folder"),
        (["ftp://127.0.0.1/file"], "is no source"),
        (["/data/file"], "is no source"),
    ],
)
def test_wrong_words_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    from muster_models.data import main

    assert main(["stage", words[0], str(tmp_path), *words[1:]]) == 1
    [said] = capsys.readouterr().err.splitlines()
    assert says in said


def test_a_folder_where_one_may_not_write_is_one_sentence(
    server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_models.data import main

    assert main(["stage", server.url, "/proc/none", "--sha256", SHA256]) == 1
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("error: /proc/none: ")


def test_a_full_disk_says_so_and_leaves_nothing(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_models.data import main

    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    (tmp_path / "data").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path / "data")]
    subprocess.run(mount, check=True)
    try:
        assert main(["stage", server.url, str(tmp_path / "data"), "--sha256", SHA256]) == 1
        assert "no space left on device" in capsys.readouterr().err
        assert there(tmp_path) == []
    finally:
        subprocess.run(["umount", str(tmp_path / "data")], check=True)


SCRIPT = """
import sys
sys.path.insert(0, {library!r})
from muster_models.data import main
sys.exit(main(sys.argv[1:]))
"""


def started(server: FileServer, tmp_path: Path) -> "subprocess.Popen[str]":
    from model_library import LIBRARY

    return subprocess.Popen(
        [
            *(sys.executable, "-S", "-c", SCRIPT.format(library=str(LIBRARY))),
            *("stage", server.url, str(tmp_path / "data"), "--sha256", SHA256),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_run_is_continued_by_the_next(
    stage: Callable[..., int], server: FileServer, tmp_path: Path
) -> None:
    goes_on = Event()
    server.faults = [goes_on]
    process = started(server, tmp_path)
    part = tmp_path / "data" / PART
    for _ in range(1000):
        if part.exists() and part.stat().st_size:
            break
        Event().wait(0.01)
    process.kill()
    process.communicate(timeout=30)
    goes_on.set()
    assert len(server.ranges) == 1
    came = part.stat().st_size
    assert came > 0
    assert stage() == 0
    assert server.ranges[-1] == f"bytes={came}-"
    assert there(tmp_path) == ["train.tar"]


def test_of_two_at_once_one_brings_it(
    server: FileServer, stage: Callable[..., int], tmp_path: Path
) -> None:
    running = [started(server, tmp_path) for _ in range(3)]
    ends = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], ends
    assert len(server.ranges) == 1
    assert there(tmp_path) == ["train.tar"]


def test_a_token_is_not_sent_to_where_a_server_redirects(server: FileServer) -> None:
    import urllib.request

    from muster_models import download
    from muster_models.errors import ModelsError

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", server.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{http.server_address[1]}/"
    try:
        assert download.patiently(urllib.request.Request(url), url) == CONTENT
        secret = urllib.request.Request(url, headers={"Authorization": "Bearer secret"})
        with pytest.raises(ModelsError, match="answers 302"):
            download.patiently(secret, url)
        assert len(server.ranges) == 1
    finally:
        http.shutdown()
        http.server_close()
