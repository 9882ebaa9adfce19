# SPDX-License-Identifier: Apache-2.0
"""Commands in a service of systemd, as an account of their own, closed off from the host."""

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from muster_build import inside, room
from muster_build.errors import FailedError, InterruptError, RefusedError
from muster_build.programs import one_line

ACCOUNT = "muster-build"

UNIT = "muster-build.service"
"""One name, so one build at a time: two of the same account could reach each other's folders."""

LOG_BYTES = 2**24
"""Of one log: what a build prints after that goes to stdout alone."""

LOOK_SECONDS = 2.0
"""Between two looks at the free space."""

HIDDEN = ("/home", "/root", "/run", "/var")
"""Empty for a build: homes, sockets of services, and what services store."""

SECRETS = ("/etc/ceph", "/etc/munge", "/etc/muster", "/etc/mysql", "/etc/slurm")
"""Hidden too. Their modes protect what is secret there, but one wrong mode would be enough."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def run(root: str, command: str, timeout_seconds: int | None, log: BinaryIO) -> None:
    """Run `command` closed off. Raises FailedError, RefusedError or InterruptError."""
    note(log, f"+ {command}\n".encode())
    program = [sys.executable, "-I", os.path.abspath(inside.__file__), os.path.realpath(root)]
    service = ["systemd-run", "--wait", "--pipe", "--collect", f"--unit={UNIT}"]
    options = [f"--property={text}" for text in properties(os.path.realpath(root), timeout_seconds)]
    options += [f"--setenv={text}" for text in environment()]
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as told:
        # Not as an argument: systemd would put variables into it.
        stdin.write(command.encode())
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                [*service, *options, *program], stdin=stdin, stdout=subprocess.PIPE, stderr=told
            )
        except FileNotFoundError:
            raise RefusedError(not_closed(root, "there is no systemd-run")) from None
        try:
            closed, words = follow(process, log, (root, inside.TEMPORARY))
        except FailedError:
            stop()
            process.wait()
            raise
        code = process.wait()
        told.seek(0)
        said = told.read().decode(errors="replace")
    if re.search(r"result: timeout\b", said):
        raise FailedError(f"it did not end within {timeout_seconds} s")
    if not closed:
        raise RefusedError(not_closed(root, one_line(words or said)))
    if code != 0:
        ended = re.search(r"code=(?:killed|dumped)/status=(\w+)", said)
        how = f"ended by signal {ended[1]}" if ended else f"exit status {code}"
        raise FailedError(": ".join(filter(None, [how, one_line(words)])) + hint(words))
    if not os.listdir(root):
        raise FailedError("the command ended well, but put nothing into the folder")


def properties(root: str, timeout_seconds: int | None) -> Iterator[str]:
    """Yield what closes the service off; systemd.exec(5) explains each."""
    yield f"User={ACCOUNT}"
    yield "CapabilityBoundingSet="
    yield "NoNewPrivileges=yes"
    yield "RestrictSUIDSGID=yes"
    yield "ProtectSystem=strict"
    # With these systemd fails where it can't make mounts; without them it would go on.
    yield f"TemporaryFileSystem={' '.join(f'{path}:ro' for path in HIDDEN)}"
    yield f"BindPaths={root}"
    yield f"InaccessiblePaths={' '.join(f'-{path}' for path in SECRETS)}"
    yield "PrivateTmp=yes"
    yield "PrivateDevices=yes"
    yield "ProtectProc=invisible"
    # What the host mounts while a build runs would be writable there.
    yield "MountFlags=private"
    # What is left in /dev/shm and /dev/mqueue.
    yield "RemoveIPC=yes"
    # Nothing of a build is asked to end, so nothing goes on for as long as it likes.
    yield "KillSignal=SIGKILL"
    if timeout_seconds is not None:
        yield f"RuntimeMaxSec={timeout_seconds}"
    if denied := [address for address in inside.METADATA if address not in inside.name_servers()]:
        yield f"IPAddressDeny={' '.join(denied)}"
    resolver = os.path.dirname(os.path.realpath("/etc/resolv.conf"))
    if inside.is_below(resolver, HIDDEN):
        yield f"BindReadOnlyPaths=-{resolver}"


def environment() -> Iterator[str]:
    """Yield the variables that a command gets beside those of systemd."""
    yield f"HOME={inside.TEMPORARY}"
    yield f"TMPDIR={inside.TEMPORARY}"
    yield "LANG=C.UTF-8"
    # sshd takes them from /etc/environment, systemd does not.
    yield from (f"{name}={os.environ[name]}" for name in PROXIES if name in os.environ)


STOP = ("systemctl", "--quiet", "--no-ask-password", "stop", UNIT)


def stop() -> None:
    """End the service with all that it has started; there may be none."""
    subprocess.run(STOP, stderr=subprocess.DEVNULL, check=False)


KEEPER = f"trap '' HUP INT TERM; read line; exec {' '.join(STOP)} 2>/dev/null"


@contextmanager
def ends_with_this_program(*locks: int) -> Iterator[None]:
    """Stop the service at the end, and also if this program is killed.

    The service is a child of systemd, not of this program. So another process waits until the pipe
    that this one holds is closed, by whatever. It keeps the locks until the service has ended.
    """
    with subprocess.Popen(
        ["/bin/sh", "-c", KEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=locks,
    ):
        yield


def follow(
    build: "subprocess.Popen[bytes]", log: BinaryIO, disks: Sequence[str]
) -> tuple[bool, str]:
    """Print what a build prints; return whether it was closed off, and its last words.

    Args:
        build: The service's.
        log: Gets the same.
        disks: Folders on the file systems that must not get full.

    Raises:
        InterruptError: nobody reads any more; Ansible or its connection has ended.
        FailedError: a file system gets full.

    """
    if build.stdout is None:
        return False, ""
    output = build.stdout.fileno()
    poller = select.poll()
    poller.register(output, select.POLLIN)
    # Without an event to wait for it reports errors only, such as a reader that has gone.
    poller.register(sys.stdout.fileno(), 0)
    closed, said, looked = False, b"", 0.0
    while True:
        if time.monotonic() - looked >= LOOK_SECONDS:
            room.refuse_full(disks)
            looked = time.monotonic()
        ready = [file for file, _ in poller.poll(LOOK_SECONDS * 1000)]
        if sys.stdout.fileno() in ready:
            raise InterruptError
        if output not in ready:
            continue
        chunk = os.read(output, 65536)
        if not chunk:
            return closed, said.decode(errors="replace")
        said += chunk
        if not closed and said.startswith(inside.FIRST):
            closed, said = True, said.removeprefix(inside.FIRST)
            chunk = said
        if closed:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            if log.tell() < LOG_BYTES:
                note(log, chunk)
            said = said[-65536:]


def note(log: BinaryIO, text: bytes) -> None:
    """Write to a log. Raises OSError, which names it."""
    try:
        log.write(text)
    except OSError as error:
        # That of a full disk names no file.
        raise OSError(error.errno, error.strerror, log.name) from error


def survivors() -> list[str]:
    """Return the processes of the service: none once it has ended, unless the kernel holds one."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cgroup", encoding="utf-8") as stream:
                if f"/{UNIT}\n" in stream.read():
                    pids.append(pid)
        except OSError:  # it has ended meanwhile
            continue
    return pids


def refuse_survivors(root: str) -> None:
    """Raise RefusedError if something of a build still runs: it could change what is root's."""
    if pids := survivors():
        raise RefusedError(
            f"{root} was not built: a build's process {pids[0]} can't be killed; see "
            f"/proc/{pids[0]}/stack for what it waits for, and run again when it has ended"
        )


def hint(words: str) -> str:
    """Return what explains last words that sound like a wall, or like no way to an index."""
    if "error sending request for url" in words:
        return " (packages come from PyPI, or the mirror that /etc/uv/uv.toml of this host names)"
    if re.search("Read-only file system|Permission denied|Operation not permitted", words):
        return " (a build can write to its folder and to $TMPDIR only)"
    return ""


def not_closed(root: str, why: str) -> str:
    """Return the sentence for a host on which builds can't be closed off."""
    return (
        f"{root} was not built, since systemd does not close builds off on this host: {why}; see "
        f"journalctl -u {UNIT}, and run again with the distribution's own kernel and systemd; "
        "nothing is built without it"
    )
