# SPDX-License-Identifier: Apache-2.0
"""Downloads by HTTP: a file is at its place whole and checked, or it is not there.

What has come of a file lies beside its place (`.DIGEST.USER.part`, with a digest of its name and of
which file it is, and the user's number) and the next run of the same user goes on from there:
another one may not write to it. A server that fails for a while is asked again, up to `TRIES` times
without a byte that had not come before.
"""

import errno
import hashlib
import http.client
import os
import re
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Any, NamedTuple, NoReturn

from muster_models import digests, durable
from muster_models.digests import BLOCK, Digest
from muster_models.errors import ModelsError, is_full, of_system
from muster_models.progress import Progress, say

TRIES = 6
WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Before each further try, if the server does not say how long."""
LONGEST_WAIT_S = 60.0
"""A server that asks for a longer pause is not waited for."""
SILENCE_S = 60.0
"""After so long without a byte the connection counts as lost."""
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class Login:
    """An access token. It runs out, within an hour where it is Google's."""

    def __init__(self, token: str | None, again: Callable[[], str | None] = lambda: None) -> None:
        """`again` returns a token that is valid, if there is one."""
        self._token = token
        self._again = again

    def headers(self) -> dict[str, str]:
        """Return what a request has of it."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def renew(self) -> bool:
        """Get another token; return whether there is one."""
        token = self._again()
        is_new = token is not None and token != self._token
        if is_new:
            self._token = token
        return is_new


class Source(NamedTuple):
    """A file of a server."""

    url: str
    digest: Digest | None
    """None: the server has none, and the size alone is compared."""
    size: int | None = None
    """In bytes; None: the server says it with the file."""
    headers: Mapping[str, str] = {}
    login: Login = Login(None)

    @property
    def name(self) -> str:
        """The address for people: without its query, which may have a signature."""
        return self.url.partition("?")[0]


class WrongDigestError(ModelsError):
    """What has come is not what it should be."""


class _LoginError(ModelsError):
    """The server does not take the login, or asks for one."""


class _FaultError(Exception):
    """A fault that may pass: why, and the seconds to wait, if the server said them."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect of a request that carries a token: urllib would send it along."""

    def redirect_request(self, req: urllib.request.Request, *_: Any) -> None:
        """Refuse: the redirect is the answer."""
        if req.has_header("Authorization"):
            return None
        return super().redirect_request(req, *_)  # type: ignore[return-value]


_OPENER = urllib.request.build_opener(_NoRedirects)


def bring(source: Source, target: str, at: int, progress: Progress) -> bool:
    """Put a file of a server at `target`; return whether it had to come.

    Of two of one user that bring the same file at once, one waits for the other.

    Args:
        source: The file.
        target: Its path here, for people: who else may write there may change where it leads.
        at: Descriptor of the folder that it comes to.
        progress: Counts its bytes.

    Raises:
        ModelsError: the server refuses or fails, the file is another one, or there is no room.

    """
    folder, name = os.path.split(target)
    # Without a digest its address says which one it is: that of a bucket has the generation.
    which = source.digest.value if source.digest else source.url
    # The name itself may be as long as a file system takes.
    mark = hashlib.sha256(f"{name} {which}".encode()).hexdigest()[:32]
    part = f".{mark}.{os.geteuid()}.part"
    try:
        with durable.locked(
            f"{part}.lock", waits=lambda: say(f"{target}: another one brings it"), folder=at
        ):
            try:
                if (size := _is_there(source, name, at)) is not None:
                    progress.add(size)
                    return False
                goes_on = _size_of(part, at) is not None
                try:
                    _fetch(source, part, at, progress)
                    _check(source, part, at)
                except WrongDigestError:
                    if not goes_on:
                        raise
                    # The server may have had another file when its first part came.
                    _fetch(source, part, at, progress)
                    _check(source, part, at)
                durable.sync(part, at)
                os.replace(part, name, src_dir_fd=at, dst_dir_fd=at)
                durable.sync(".", at)
            finally:
                if _size_of(part, at) == 0:
                    os.unlink(part, dir_fd=at)
                os.unlink(f"{part}.lock", dir_fd=at)
    except OSError as error:
        if is_full(error):
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=at)
        if error.filename:
            error.filename = os.path.join(folder, error.filename)
        raise of_system(error, target) from error
    return True


def _size_of(name: str, at: int) -> int | None:
    """Return the size of a file in a folder; None: it is not there."""
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def _read(name: str, at: int) -> int:
    # A FIFO in its place keeps nobody waiting.
    return durable.opened_there(name, os.O_RDONLY | os.O_NONBLOCK, at)


def _is_there(source: Source, name: str, at: int) -> int | None:
    """Return the size of a file that has come already; None: it has not."""
    try:
        handle = _read(name, at)
    except OSError as error:
        # A link is no file that has come, wherever it leads.
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    what = os.fstat(handle)
    if not stat.S_ISREG(what.st_mode):
        os.close(handle)
        return None
    if source.digest is None:
        os.close(handle)
        return what.st_size if what.st_size == source.size else None
    kind = source.digest.kind
    is_it = digests.digests_of(handle, kind)[kind] == source.digest.value
    return what.st_size if is_it else None


def _check(source: Source, part: str, at: int) -> None:
    """Raise WrongDigestError, and remove what has come, if it is another file."""
    if source.digest is None:
        return
    kind = source.digest.kind
    came = digests.digests_of(_read(part, at), kind)[kind]
    if came != source.digest.value:
        os.unlink(part, dir_fd=at)
        raise WrongDigestError(
            f"{source.name} has the {kind} {came} and not {source.digest.value}; it was removed: "
            "compare the digest with the one that the file's makers give, and the address too"
        )


def _fetch(source: Source, part: str, at: int, progress: Progress) -> None:
    """Write a file of a server to `part`, from where it ends on."""
    failures = 0
    # Where it was when the login was renewed: a new one that brings nothing is not renewed.
    renewed_at = -1
    with open(part, "ab", opener=partial(durable.opened_there, folder=at)) as stream:
        furthest = stream.tell()
        progress.add(furthest)
        while True:
            try:
                _go_on(source, stream, progress)
                return
            except _LoginError:
                if stream.tell() == renewed_at or not source.login.renew():
                    raise
                renewed_at = stream.tell()
            except _FaultError as fault:
                # As long as something comes, it goes on. What a server without parts sends again
                # is not that.
                failures = 1 if stream.tell() > furthest else failures + 1
                furthest = max(furthest, stream.tell())
                wait = _wait_s(fault, failures, source.name)
                if failures >= TRIES:
                    raise ModelsError(
                        f"{source.name}: {fault}, {failures} times in a row; run it again later: "
                        f"the {stream.tell()} bytes that have come stay"
                    ) from fault
                time.sleep(wait)


def _go_on(source: Source, stream: IO[bytes], progress: Progress) -> None:
    """Append what is missing. Raises _FaultError, ModelsError or OSError of the file."""
    begin = stream.tell()
    if source.size is not None and begin == source.size:
        return
    headers = {**source.headers, **source.login.headers()}
    request = urllib.request.Request(source.url, headers=headers)  # noqa: S310
    # Else a server may send it packed, and a part of it could not be continued.
    if not request.has_header("Accept-encoding"):
        request.add_header("Accept-Encoding", "identity")
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    with open_url(request, source.name) as response:
        if response.status == 416:
            if _size(response) == begin:
                return
            _begin_again(stream, progress)
            raise _FaultError("the server has no such part of it")
        if response.status != 206 and begin:
            _begin_again(stream, progress)
        size = _size(response)
        if source.size is not None and size is not None and size != source.size:
            raise ModelsError(
                f"{source.name} has {size} bytes and not {source.size}; it has changed since it "
                "was listed: run it again"
            )
        expected = source.size if source.size is not None else size
        _copy(response, stream, progress)
    if expected is not None and stream.tell() > expected:
        _begin_again(stream, progress)
    if expected is not None and stream.tell() != expected:
        raise _FaultError(f"the connection ended after {stream.tell()} of {expected} bytes")


def _begin_again(stream: IO[bytes], progress: Progress) -> None:
    progress.add(-stream.tell())
    stream.seek(0)
    stream.truncate()


def _copy(response: Any, stream: IO[bytes], progress: Progress) -> None:
    try:
        while True:
            try:
                # What has come so far: a whole block would be lost with the connection.
                block = response.read1(BLOCK)
            except (OSError, http.client.HTTPException) as error:
                raise _FaultError(f"the connection broke ({error})") from error
            if not block:
                return
            stream.write(block)
            progress.add(len(block))
    finally:
        stream.flush()


def _size(response: Any) -> int | None:
    """Return the size of the whole file, if the server says it."""
    if match := re.fullmatch(
        r"bytes (?:\d+-\d+|\*)/(\d+)", response.headers.get("Content-Range", "")
    ):
        return int(match[1])
    length = response.headers.get("Content-Length")
    return int(length) if length and length.isdecimal() else None


def open_url(request: urllib.request.Request, name: str) -> Any:
    """Return a server's answer, or its refusal of a part. `name` is the address for people.

    Raises _FaultError or ModelsError.
    """
    try:
        return _OPENER.open(request, timeout=SILENCE_S)
    except urllib.error.HTTPError as error:
        if error.code == 416 and request.has_header("Range"):
            return error
        with error:
            _refuse(error, name)
    except urllib.error.URLError as error:
        raise _FaultError(f"the server can't be reached ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise _FaultError(f"the connection broke ({error})") from error


def _refuse(error: urllib.error.HTTPError, name: str) -> NoReturn:
    if error.code in _AGAIN:
        raise _FaultError(f"the server answers {error.code}", _retry_after(error)) from error
    if error.code == 401:
        raise _LoginError(
            f"{name}: the server refuses it (401); ask for access to it, or log in, and where the "
            "login has run out meanwhile, run it again: what has come stays"
        ) from error
    if error.code == 403:
        raise ModelsError(
            f"{name}: the server refuses it (403); ask for access to it, or log in"
        ) from error
    if error.code in (404, 410):
        raise ModelsError(f"{name} is not there ({error.code}); correct the address") from error
    raise ModelsError(
        f"{name}: the server answers {error.code} ({error.reason}); open the address in a browser "
        "to see what it wants"
    ) from error


def _retry_after(error: urllib.error.HTTPError) -> float | None:
    """Return the seconds that a server asks to wait; a date counts as not said."""
    said = error.headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else None


def _wait_s(fault: _FaultError, failures: int, name: str) -> float:
    """Return the seconds before the next try. Raises ModelsError if nobody waits so long."""
    wait = fault.wait_s or WAITS_S[min(failures, len(WAITS_S)) - 1]
    if wait > LONGEST_WAIT_S:
        raise ModelsError(
            f"{name}: {fault} and asks for {wait:.0f} s of pause; run it again after that"
        ) from fault
    return wait


def patiently(request: urllib.request.Request, name: str) -> bytes:
    """Return the whole answer of a server that may fail for a while. Raises ModelsError."""
    for number in range(1, TRIES + 1):
        try:
            with open_url(request, name) as response:
                try:
                    answer: bytes = response.read()
                except (OSError, http.client.HTTPException) as error:
                    raise _FaultError(f"the connection broke ({error})") from error
                return answer
        except _FaultError as fault:
            wait = _wait_s(fault, number, name)
            if number == TRIES:
                raise ModelsError(
                    f"{name}: {fault}, {number} times in a row; run it again later"
                ) from fault
            time.sleep(wait)
    raise AssertionError
