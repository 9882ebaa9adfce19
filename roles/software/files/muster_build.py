#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Build one folder of software as an account of its own, closed off from the rest of the host.

    muster-build [--timeout SECONDS] [--verify COMMAND] [--image FILE] FOLDER COMMAND

Installed by Muster's role `software`, whose play runs it; an administrator runs it by hand for what
the play does not build. COMMAND is for /bin/sh and runs programs of strangers. It can write to
FOLDER, which is there and empty, and to a temporary folder of its own, which TMPDIR and HOME name.
It reaches the internet, and no secret, socket or home of this host: systemd sees to that, and
`faults` looks whether it does before the command starts. In the end all that the command has
started is killed, and the folder becomes root's.

The second command, which looks whether what was built works, runs in the same way when the folder
is root's already. Then the folder is packed into FILE, if one is named, and becomes a link to where
autofs mounts FILE on each host (role `lmod`). What both print goes to stdout and to a file in
/var/log/muster-build. A build ends when the disk gets full. Until all is done a file
FOLDER.building is beside the folder. Exit code 1: it was not built, nothing is left, and stderr
says why.
"""

import argparse
import fcntl
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import BinaryIO, NoReturn

ACCOUNT = "muster-build"

UNIT = "muster-build.service"
"""One name, so one build at a time: two of the same account could reach each other's folders."""

LOCK = "/run/muster-build.lock"

LOGS = "/var/log/muster-build"

LOG_BYTES = 2**24
"""Of one log: what a build prints after that goes to stdout alone."""

SPARED_BYTES = 2**30
"""Free space that a build leaves to others, in the file systems of its folder and of TMPDIR."""

LOOK_SECONDS = 2.0
"""Between two looks at that space."""

TEMPORARY = "/var/tmp"  # noqa: S108
"""TMPDIR and HOME. It is the build's own, and on a disk: /tmp may be in memory."""

RELEASES = "/opt/muster/releases"
"""Where autofs mounts packed releases, on each host, by their names."""

PACK = (
    # The kernels of all systems that Muster knows read zstd.
    *("-comp", "zstd", "-no-xattrs", "-no-exports", "-mkfs-time", "0", "-noappend"),
    *("-no-progress", "-quiet"),
)
"""Options of mksquashfs: the same folder makes the same file. The times of what is in it stay:
Python compares that of a module with the one in its compiled file."""

RELEASE = re.compile(r"(?:/[\w.+-]+)*?/[0-9a-f]{16}(?![\w.+-])")
"""The folder of a release in a command."""

HIDDEN = ("/home", "/root", "/run", "/var")
"""Empty for a build: homes, sockets of services, and what services store."""

SECRETS = ("/etc/ceph", "/etc/munge", "/etc/muster", "/etc/mysql", "/etc/slurm")
"""Hidden too. Their modes protect what is secret there, but one wrong mode would be enough."""

METADATA = ("169.254.169.254", "fd20:ce::254")
"""The metadata server of Google Cloud, which gives the VM's token to everybody who asks."""

KERNELS = ("/dev", "/proc", "/sys")
"""Mounts in these are the kernel's; the owners of what is in them count."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

FIRST = b"muster-build: closed off\n"
"""The first line from inside; then the command starts."""

PLAIN = re.compile(r"(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)+")
"""A path that systemd takes as it is."""

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Of the programs that root runs itself."""

LAST_WORDS = 5
"""How many lines of a failed command its message repeats."""


class RefusedError(Exception):
    """What can't be done, said in a sentence."""


class FailedError(Exception):
    """What went wrong with a command."""


class VerifyError(FailedError):
    """Why what was built does not work."""


class PackError(FailedError):
    """Why what was built can't be packed."""


class InterruptError(Exception):
    """Somebody ends this program, or nobody reads what it prints any more."""


# Outside, as root.


def build(
    root: str, command: str, verify: str | None, image: str | None, timeout_seconds: int | None
) -> None:
    """Make the folder `root` by `command`, have `verify` look at it, and pack it into `image`.

    Raises:
        FailedError: one of the commands failed.
        RefusedError: it can't be built here and now.
        InterruptError: somebody ended this program.
        OSError: a folder or file can't be written.

    """
    if not PLAIN.fullmatch(root):
        raise RefusedError(
            f'"{root}" can\'t be the folder of a build; begin it with / and use letters, digits '
            "and _ . + - between the slashes"
        )
    try:
        account = pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise RefusedError(
            f"there is no account {ACCOUNT} on this host; run the role software, which makes it"
        ) from None
    if image is not None and shutil.which("mksquashfs", path=PATH) is None:
        raise RefusedError(
            f"{root} was not built, since this host has no mksquashfs to pack it; install "
            "squashfs-tools, as the role software does, and run again"
        )
    busy = "another build runs on this host; wait for it, then run again"
    with locked(LOCK, busy) as lock:
        os.makedirs(os.path.dirname(root), mode=0o755, exist_ok=True)
        mark = f"{root}.building"
        if os.path.lexists(root) and not os.path.exists(mark):
            raise RefusedError(f"{root} is there already; remove it to build it again")
        # Of a program that was killed at the moment at which it started its service.
        subprocess.run(STOP, stderr=subprocess.DEVNULL, check=False)
        refuse_survivors(root)
        # Another host may build there; locks hold across a file server.
        busy = f"{root} is being built by another run; wait for it, then run again"
        with locked(mark, busy) as mark_lock:
            try:
                remove(root, *files_of(image))
                os.mkdir(root, mode=0o755)
                os.chown(root, account.pw_uid, account.pw_gid)
                with (
                    ends_with_this_program(lock, mark_lock),
                    mounted(command, verify or ""),
                    log_of(root) as log,
                ):
                    run(root, command, timeout_seconds, log)
                    refuse_survivors(root)
                    hand_over(root)
                    if verify is not None:
                        try:
                            run(root, verify, timeout_seconds, log)
                        except FailedError as error:
                            raise VerifyError(str(error)) from None
                        refuse_survivors(root)
                if image is not None:
                    pack(root, image)
            except BaseException:
                # With the mark beside it a folder counts as missing.
                if not survivors():
                    remove(root, *files_of(image))
                    os.unlink(mark)
                raise
            os.unlink(mark)


@contextmanager
def locked(path: str, busy: str) -> Iterator[int]:
    """Hold the lock of a file and give its descriptor. Raises RefusedError with `busy`."""
    # Only root opens it: who can read a file can lock it.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(busy) from None
        yield lock
    finally:
        os.close(lock)


@contextmanager
def log_of(root: str) -> Iterator[BinaryIO]:
    """Open the file for what the commands of a folder print. Root alone reads it."""
    os.makedirs(LOGS, mode=0o700, exist_ok=True)
    path = os.path.join(LOGS, f"{root.strip('/').replace('/', '_')}.log")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        yield log


def run(root: str, command: str, timeout_seconds: int | None, log: BinaryIO) -> None:
    """Run `command` closed off. Raises FailedError, RefusedError or InterruptError."""
    log.write(f"+ {command}\n".encode())
    inside = [sys.executable, "-I", os.path.abspath(__file__), "--inside", os.path.realpath(root)]
    service = ["systemd-run", "--wait", "--pipe", "--collect", f"--unit={UNIT}"]
    options = [f"--property={text}" for text in properties(os.path.realpath(root), timeout_seconds)]
    options += [f"--setenv={text}" for text in environment()]
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as told:
        # Not as an argument: systemd would put variables into it.
        stdin.write(command.encode())
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                [*service, *options, *inside], stdin=stdin, stdout=subprocess.PIPE, stderr=told
            )
        except FileNotFoundError:
            raise RefusedError(not_closed(root, "there is no systemd-run")) from None
        try:
            closed, words = follow(process, log, (root, TEMPORARY))
        except FailedError:
            subprocess.run(STOP, stderr=subprocess.DEVNULL, check=False)
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
    if denied := [address for address in METADATA if address not in name_servers()]:
        yield f"IPAddressDeny={' '.join(denied)}"
    resolver = os.path.dirname(os.path.realpath("/etc/resolv.conf"))
    if is_below(resolver, HIDDEN):
        yield f"BindReadOnlyPaths=-{resolver}"


def environment() -> Iterator[str]:
    """Yield the variables that a command gets beside those of systemd."""
    yield f"HOME={TEMPORARY}"
    yield f"TMPDIR={TEMPORARY}"
    yield "LANG=C.UTF-8"
    # sshd takes them from /etc/environment, systemd does not.
    yield from (f"{name}={os.environ[name]}" for name in PROXIES if name in os.environ)


STOP = ("systemctl", "--quiet", "--no-ask-password", "stop", UNIT)

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
            refuse_full(disks)
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
        if not closed and said.startswith(FIRST):
            closed, said = True, said.removeprefix(FIRST)
            chunk = said
        if closed:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            if log.tell() < LOG_BYTES:
                log.write(chunk)
                log.flush()
            said = said[-65536:]


def refuse_full(disks: Sequence[str]) -> None:
    """Raise FailedError if one of the file systems has hardly any space left."""
    for folder in disks:
        there = os.statvfs(folder)
        if there.f_bavail * there.f_frsize < SPARED_BYTES:
            raise FailedError(
                f"the file system of {folder} has less than {SPARED_BYTES // 2**20} MiB left, "
                "which a build leaves to others; make room there"
            )


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


def hand_over(root: str) -> None:
    """Give what was built to root. Raises FailedError.

    The programs that do it follow no link, and take paths longer than any that could be named.
    """
    special = found(root, "-type", "b,c,p,s", "-print", "-quit")
    if special:
        raise FailedError(f"it left {special}, which is neither a file nor a folder nor a link")
    # Before the owner: a set-uid program must not become root's.
    found(root, "!", "-type", "l", "-perm", "/6022", "-execdir", "chmod", "ug-s,go-w", "{}", "+")
    checked(["chown", "--recursive", "--no-dereference", "root:root", root])


@contextmanager
def mounted(*commands: str) -> Iterator[None]:
    """Keep packed releases mounted that commands name, and those that these are built on.

    Among the mounts of a service nothing new appears, and what autofs takes away goes there too.
    Raises RefusedError if this host does not mount one.
    """
    ahead = [root for command in commands for root in RELEASE.findall(command)]
    seen = set()
    with ExitStack() as stack:
        while ahead:
            root = ahead.pop()
            if root in seen:
                continue
            seen.add(root)
            if os.path.islink(root):
                stack.callback(os.close, entered(root))
            if os.path.exists(f"{root}.json"):
                with open(f"{root}.json", encoding="utf-8") as stream:
                    ahead += json.load(stream)["built_on"]
        yield


def entered(root: str) -> int:
    """Return a descriptor of a packed release, which mounts it. Raises RefusedError."""
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(
            f"this host does not mount {os.readlink(root)}: {error.strerror}; see journalctl -u "
            "autofs, and run site.yml, whose role lmod configures it"
        ) from None


def files_of(image: str | None) -> tuple[str, ...]:
    """Return what packing writes: the file, and the one that is not whole yet."""
    return (image, f"{image}.new") if image is not None else ()


def pack(root: str, image: str) -> None:
    """Pack a folder into a file, and make it a link to where hosts mount that. Raises PackError."""
    folder, new = os.path.dirname(image), f"{image}.new"
    os.makedirs(folder, mode=0o755, exist_ok=True)
    try:
        refuse_no_room(folder, root)
        # If this program is killed, nothing writes on beside the next one.
        checked(["setpriv", "--pdeathsig=KILL", "mksquashfs", root, new, *PACK])
        os.chmod(new, 0o644)
        sync(new)
        os.rename(new, image)
        sync(folder)
        remove(root)
        os.symlink(f"{RELEASES}/{os.path.basename(image).partition('.')[0]}", root)
        os.close(entered(root))
    except (FailedError, RefusedError) as error:
        raise PackError(str(error)) from None


def refuse_no_room(folder: str, root: str) -> None:
    """Raise FailedError if a file with all that is in `root` may fill the disk of `folder`."""
    size = int(checked(["du", "--summarize", "--block-size=1", root]).split()[0])
    there = os.statvfs(folder)
    if (free := there.f_bavail * there.f_frsize) < size + SPARED_BYTES:
        raise FailedError(
            f"the file system of {folder} has {free // 2**20} MiB left, and needs "
            f"{(size + SPARED_BYTES) // 2**20} MiB, of which {SPARED_BYTES // 2**20} MiB are left "
            "to others; make room there"
        )


def sync(path: str) -> None:
    """Have the disk, or the server, keep what was written to a file or folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def found(root: str, *words: str) -> str:
    """Return what `find` prints."""
    return checked(["find", root, *words]).strip()


def remove(*paths: str) -> None:
    """Remove a folder, whatever a build has made of it, and files. Raises RefusedError."""
    try:
        checked(["rm", "--recursive", "--force", "--one-file-system", *paths])
    except FailedError as error:
        raise RefusedError(
            f"{' '.join(paths)} can't be removed: {error}; remove it and run again"
        ) from None


def checked(command: Sequence[str]) -> str:
    """Run a program of the host; return what it prints. Raises FailedError."""
    done = subprocess.run(
        command, env={"PATH": PATH, "LC_ALL": "C.UTF-8"}, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise FailedError(one_line(done.stderr.decode(errors="replace")))
    return done.stdout.decode(errors="replace")


def one_line(text: str) -> str:
    """Return the last lines of a text in one."""
    return " / ".join(line.strip() for line in text.splitlines()[-LAST_WORDS:] if line.strip())


def hint(words: str) -> str:
    """Return what explains last words that sound like a wall."""
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


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether `path` is one of `folders` or in one of them."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def name_servers() -> list[str]:
    """Return the addresses that this host asks for names."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8") as stream:
            lines = [line.split() for line in stream]
    except FileNotFoundError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


# Inside, as the account.


def inside(root: str) -> int:
    """Look whether this process is closed off; then become the command."""
    if wrong := "; ".join(faults(root)):
        sys.stdout.write(f"{wrong}\n")
        return 1
    command = sys.stdin.read()
    os.write(1, FIRST)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    # Python ignores them, and what it becomes would too.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    return os.execv("/bin/sh", ["sh", "-ec", command])


def faults(root: str) -> Iterator[str]:
    """Yield what a build could do and must not: some of it systemd leaves out without a word."""
    with open("/proc/self/status", encoding="utf-8") as stream:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line)
    if os.getuid() == 0 or int(status["CapBnd"], 16) != 0 or status["NoNewPrivs"] != "1":
        yield "it would have rights of root"
        return
    own = (root, "/tmp", TEMPORARY, *KERNELS)  # noqa: S108
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:
        mounts = [line.split() for line in stream]
    for mount in mounts:  # proc(5): the fifth field is the mount point, the sixth its own options
        place, options, kind = mount[4], mount[5].split(","), mount[mount.index("-") + 1]
        if "rw" in options and kind != "autofs" and not is_below(place, own):
            yield f"it could write to {place}"
    with tempfile.TemporaryFile() as trial:
        try:
            os.fchmod(trial.fileno(), 0o4700)
        except PermissionError:
            pass
        else:
            yield "it could make set-uid programs"
    resolving = name_servers()
    for address in METADATA:
        if is_answered(address) if address in resolving else is_sent_to(address):
            yield f"it could reach the metadata server at {address}"


def is_sent_to(address: str) -> bool:
    """Whether a packet to `address` leaves this process: the filter refuses it at once."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.sendto(b"", (address, 9))
    except OSError:  # the filter, or no way there
        return False
    return True


def is_answered(address: str) -> bool:
    """Whether the server at `address`, which is needed for names, might give a token.

    Muster's role cloud_vm has a guard that refuses this port to all but some users.
    """
    try:
        socket.create_connection((address, 80), timeout=5).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


# The program.


def interrupt(_: int, __: FrameType | None) -> NoReturn:
    """Have the build end, and what it left removed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise InterruptError


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    if arguments[:1] == ["--inside"]:
        return inside(arguments[1])
    parser = argparse.ArgumentParser(
        prog="muster-build",
        description="Build one folder of software, closed off from the rest of the host.",
    )
    parser.add_argument("--timeout", type=int, metavar="SECONDS", help="how long it may take")
    parser.add_argument("--verify", metavar="COMMAND", help="looks whether it works")
    parser.add_argument("--image", metavar="FILE", help="the folder is packed into it")
    parser.add_argument("folder", metavar="FOLDER", help="where the command puts the software")
    parser.add_argument("command", metavar="COMMAND", help="for /bin/sh; quote it")
    given = parser.parse_args(arguments)
    os.umask(0o022)
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        build(given.folder, given.command, given.verify, given.image, given.timeout)
    except VerifyError as error:
        said = (
            f"{given.folder} was built, but does not work, so it was removed and is not published: "
            f"{error}; fix its definition and run again"
        )
    except PackError as error:
        said = (
            f"{given.folder} was built, but can't be packed into {given.image}, so it was removed "
            f"and is not published: {error}"
        )
    except FailedError as error:
        said = (
            f"{given.folder} was not built and nothing is left of it: {error}; the command was "
            f"`{given.command}`; fix its definition and run again, or set `built: false` to build "
            "it by hand"
        )
    except RefusedError as error:
        said = str(error)
    except InterruptError:
        said = f"{given.folder} was not built: interrupted; run again"
    except OSError as error:
        said = f"{error.filename}: {error.strerror}"
    else:
        return 0
    sys.stderr.write(f"{said}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
