#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""A job's own folders on this node: `scratch.py prolog` makes them, `scratch.py epilog` removes.

`scratch.py check`, which the node's health check runs, says whether they can be made, and
`scratch.py unmount FOLDER` is a part of the removal.

Run by slurmd as root, with the job in the environment. The folder lies in TmpFS of slurm.conf, by
the job's number; without TmpFS there is none. A folder that can't be made fails the prolog: SLURM
drains the node, and the job starts elsewhere. One that can't be removed is only logged: the node
is sound.

SLURM itself makes a job's private /tmp and removes it (job_container/tmpfs). This program does two
things that SLURM does not. A job that started before slurmd loaded that plugin has no private /tmp,
and its later steps would fail because they look for it: a link leads them to the /tmp of the node.
And what is still there when a job has ended is removed, or the job could not be queued again.

What a crashed node left is removed by the first prologs after its boot. Jobs that began since have
a mark in /run, whatever the clock said when their folders were made.

Python's standard library alone: it runs with the system's Python 3.10 and later.
"""

import ctypes
import errno
import glob
import math
import os
import pwd
import re
import stat
import subprocess
import sys
import syslog
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress

# What slurmd fetched from the controller, or on the controller itself what is written there.
CONFIGURATIONS = ("/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf")
MOUNTINFO = "/proc/self/mountinfo"
MNT_DETACH = 2
"""Of umount2(2)."""

PLUGINS = ("job_container_tmpfs.so", "namespace_tmpfs.so")
"""What slurmd has loaded where jobs have a private /tmp."""
NODE_NAMESPACE = "/proc/1/ns/mnt"
NODE = os.uname().nodename.partition(".")[0]
"""The node's name in SLURM, where a person calls the program and not slurmd."""

REFUSED = 3
"""Exit status of `scratch.py check` where no folder can be made."""

COUNT_S = 4.0
"""How long to count files of jobs: the health check waits for 13 s."""
PROLOG_S = 5.0
EPILOG_S = 600.0
"""How long to wait for a removal; it then continues, and the space is free later."""
LEAST_BYTES = 1 << 20
"""With less room for people a disk is full. Root alone could go on: ext4 keeps 5 % for it."""

MARKS = "/run/muster-scratch"
"""A file for each job that has begun here since the boot."""
OWN = ".muster"
"""A file in the folder of the jobs' folders: whatever has a number there is a job's."""

NUMBER = re.compile(r"[0-9]+")
REMOVED = re.compile(r"\.[0-9]+\.[0-9]+")
"""A folder that is being removed: hidden, so that the same job may get a new one at once."""


class ScratchError(Exception):
    """What keeps a job from its folder, in one sentence."""


def tmp_fs(places: tuple[str, ...] = CONFIGURATIONS) -> str | None:
    """Return TmpFS of the first slurm.conf that is there, or None."""
    return setting("TmpFS", places)


def setting(key: str, places: tuple[str, ...] = CONFIGURATIONS) -> str | None:
    """Return the value of a key of the first slurm.conf that is there, or None."""
    for place in places:
        try:
            with open(place, encoding="utf-8", errors="replace") as file:
                pairs = [line.partition("=") for line in file.read().splitlines()]
        except FileNotFoundError:
            continue
        return next((value for name, _, value in pairs if name == key), None)
    raise ScratchError(f"there is no {' and no '.join(places)}; is slurmd configured?")


def private_tmp(root: str | None, node: str) -> str:
    """Return where the /tmp of this node's jobs lie: BasePath of job_container.conf.

    Debian's SLURM adds the name of the node to it.
    """
    base = "/var/spool/muster-tmp" if root is None else f"{root}/.private-tmp"
    return f"{base}/{node}"


def has_plugin(process: int, proc: str = "/proc") -> bool:
    """Whether the slurmd that started this process gives jobs a private /tmp.

    Not what slurm.conf says: slurmd loads the plugin when it starts, and a changed slurm.conf is
    there before that.
    """
    try:
        while process > 1:
            with open(f"{proc}/{process}/maps", encoding="utf-8", errors="replace") as file:
                # The kernel adds that its file was replaced, as by an update.
                loaded = (line.rstrip().removesuffix(" (deleted)") for line in file)
                if any(path.endswith(PLUGINS) for path in loaded):
                    return True
            with open(f"{proc}/{process}/status", encoding="utf-8", errors="replace") as file:
                process = next(int(line.split()[1]) for line in file if line.startswith("PPid:"))
    except (FileNotFoundError, ProcessLookupError):
        # slurmd has ended: it starts no job any more.
        return False
    return False


def boot_time() -> float:
    """Return when this machine was booted, by its present clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def say(text: str) -> None:
    """Write to the journal, since SLURM keeps little of a program's output."""
    # Names that people gave may be no text, or have line breaks in them.
    text = text.encode("unicode_escape").decode()
    syslog.openlog("muster-scratch")
    syslog.syslog(syslog.LOG_ERR, text)
    print(text, file=sys.stderr)


class Scratch:
    """The folder that holds the jobs' folders."""

    def __init__(self, root: str, booted: float | None = None) -> None:
        """Take the folder and when the machine booted; the kernel says when, by default."""
        self.root = root
        self.booted = boot_time() if booted is None else booted

    def make(self, job: str, uid: int) -> None:
        """Make the folder of a job, empty, for its user alone."""
        try:
            os.makedirs(self.root, mode=0o755, exist_ok=True)
            self._check()
            self.sweep()
            path = os.path.join(self.root, job)
            # From the same job, which was requeued when the node had crashed.
            if os.path.lexists(path):
                self._remove(self._hide(job), PROLOG_S)
            self._refuse_full()
            os.mkdir(path, 0o700)
            os.chown(path, uid, -1, follow_symlinks=False)
        except OSError as error:
            raise ScratchError(f"no scratch for job {job}: {error}; look at that disk") from error

    def check(self) -> None:
        """Make a folder and remove it. Raises ScratchError, which names the job that has most."""
        try:
            os.makedirs(self.root, mode=0o755, exist_ok=True)
            self._check()
            self._refuse_full()
            path = os.path.join(self.root, f".check.{os.getpid()}")
            os.mkdir(path, 0o700)
            os.rmdir(path)
        except OSError as error:
            # No numbers: the reason of a drained node is to stay the same.
            why = f"no folder can be made in {self.root}: {error.strerror}"
            raise ScratchError("; ".join([why, *self._most(error)])) from error

    def _most(self, error: OSError) -> list[str]:
        """Return whose files fill the disk, if that is what is wrong."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return []
        is_full_of_files = os.statvfs(self.root).f_favail == 0
        words = ["/usr/bin/du", "--summarize", "--one-file-system"]
        words += ["--inodes"] if is_full_of_files else []
        paths = [entry.path for entry in os.scandir(self.root) if NUMBER.fullmatch(entry.name)]
        paths += glob.glob(f"{private_tmp(self.root, '*')}/*/.[0-9]*")
        sizes = measure({path: [*words, "--", path] for path in paths}, COUNT_S)
        if not is_full_of_files and any(size < math.inf for size in sizes.values()):
            # Many small files take long to count, and may be little.
            sizes = {path: size for path, size in sizes.items() if size < math.inf}
        for path in sorted(sizes, key=lambda path: sizes[path], reverse=True):
            with suppress(FileNotFoundError):  # its job has ended meanwhile
                whose = (
                    f"job {os.path.basename(path).lstrip('.')} of {login(os.lstat(path).st_uid)}"
                )
                return [
                    f"{whose} has most {'files' if is_full_of_files else 'of what is in there'}"
                ]
        return []

    def clear(self, job: str) -> None:
        """Remove the folder of a job, if it has one."""
        try:
            self._remove(self._hide(job), EPILOG_S)
        except FileNotFoundError:
            return
        except OSError as error:
            say(f"scratch of job {job} stays until the next boot: {error}")

    def sweep(self) -> None:
        """Remove what is left from before this boot; what can't be removed fails no job."""
        # One after the other could keep a job waiting for minutes; what is late goes on.
        end = time.monotonic() + PROLOG_S
        for name in os.listdir(self.root):
            try:
                self._sweep(name, max(0.0, end - time.monotonic()))
            except FileNotFoundError:
                continue  # A prolog or an epilog beside this one has removed it.
            except OSError as error:
                say(f"{name} from before the boot stays: {error}")

    def _sweep(self, name: str, seconds: float) -> None:
        path = os.path.join(self.root, name)
        if os.lstat(path).st_ctime > self.booted:
            return
        if NUMBER.fullmatch(name) and not os.path.lexists(f"{MARKS}/{name}"):
            self._remove(self._hide(name), seconds)
        elif REMOVED.fullmatch(name):
            self._remove(path, seconds)

    def _refuse_full(self) -> None:
        """Raise OSError where people could write nothing."""
        room = os.statvfs(self.root)
        # Some file systems say nothing of their size.
        if room.f_blocks and room.f_bavail * room.f_frsize < LEAST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _check(self) -> None:
        """Refuse a folder with folders of others, or where people could replace files of others."""
        state = os.stat(self.root)
        sticky = state.st_mode & stat.S_ISVTX
        if state.st_uid != 0 or (state.st_mode & 0o022 and not sticky):
            raise ScratchError(
                f"{self.root} is not root's alone to write to; chown root and chmod 0755 it"
            )
        own = os.path.join(self.root, OWN)
        if os.path.lexists(own):
            return
        numbers = sorted(name for name in os.listdir(self.root) if self._is_of_others(name))
        # They may be of jobs whose prologs came between.
        if numbers and not os.path.lexists(own):
            raise ScratchError(
                f"{self.root} has {numbers[0]}, which job {numbers[0]} would replace; move it to "
                "where no jobs have their folders"
            )
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def _is_of_others(self, name: str) -> bool:
        """Whether something has a job's number and is not as `make` makes its folder."""
        if not NUMBER.fullmatch(name):
            return False
        with suppress(FileNotFoundError):
            mode = os.lstat(os.path.join(self.root, name)).st_mode
            return not stat.S_ISDIR(mode) or stat.S_IMODE(mode) != 0o700
        return False

    def _hide(self, job: str) -> str:
        """Move a job's folder aside; a link is renamed, not followed (rename(2))."""
        hidden = os.path.join(self.root, f".{job}.{os.getpid()}")
        os.rename(os.path.join(self.root, job), hidden)
        return hidden

    def _remove(self, path: str, seconds: float) -> None:
        """Remove what is at `path` and nothing beyond: rm follows no link and enters no mount."""
        end = time.monotonic() + seconds
        self.unmount(mounts_below(path), seconds)
        command = ["/usr/bin/rm", "-rf", "--one-file-system", "--", path]
        done = self._run(command, max(0.0, end - time.monotonic()))
        if done and os.path.lexists(path):
            say(f"{path} could not be removed; look what is in there")

    def unmount(self, mounts: list[str], seconds: float) -> None:
        """Unmount folders, even if they are in use; wait for all together so long."""
        end = time.monotonic() + seconds
        for mount in mounts:
            # By another process: where a program that serves a mount (FUSE) has died with its job
            # nothing answers, and one that is stopped keeps who asks it waiting.
            command = [sys.executable, "-IS", os.path.abspath(__file__), "unmount", mount]
            self._run(command, max(0.0, end - time.monotonic()))

    def _run(self, command: list[str], seconds: float) -> bool:
        """Run a command; return whether it ended in time. A late one runs on."""
        # In its own session, without inherited streams: slurmd waits for both to end.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


class PrivateTmp:
    """The folder that holds the jobs' /tmp, each below the job's number."""

    def __init__(self, path: str) -> None:
        """Name the folder of this node."""
        self.jobs = Scratch(path)

    def make_ready(self) -> None:
        """Make the folder in which SLURM makes a job's. Raises ScratchError."""
        base = os.path.dirname(self.jobs.root)
        try:
            for folder in (base, self.jobs.root):
                os.makedirs(folder, mode=0o755, exist_ok=True)
                state = os.lstat(folder)
                # Where all may write to scratch, somebody may have been there first.
                if not stat.S_ISDIR(state.st_mode) or state.st_uid != 0 or state.st_mode & 0o022:
                    raise ScratchError(f"{folder} is not root's alone to write to; remove it")
            self.jobs.sweep()
        except OSError as error:
            raise ScratchError(f"no private /tmp for jobs: {error}; look at that disk") from error

    def link_to_node(self, job: str) -> None:
        """Let later steps of a job that has no private /tmp find the node's."""
        folder = os.path.join(self.jobs.root, job)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            link = os.path.join(folder, ".ns")
            if not os.path.lexists(link):
                os.symlink(NODE_NAMESPACE, link)
        except OSError as error:
            raise ScratchError(f"no link to /tmp for job {job}: {error}") from error

    def clear(self, job: str) -> None:
        """Remove what SLURM left of a job's, such as after a crash of its slurmstepd."""
        path = os.path.join(self.jobs.root, job)
        if os.path.lexists(path):
            # SLURM mounts the folder on itself.
            self.jobs.unmount(mounts_below(path, itself=True), PROLOG_S)
            self.jobs.clear(job)


def login(uid: int) -> str:
    """Return the login with this number, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def measure(commands: Mapping[str, list[str]], seconds: float) -> dict[str, float]:
    """Return the number that each command prints, by its key; infinity if it takes longer."""
    end = time.monotonic() + seconds
    running = {
        key: subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for key, words in commands.items()
    }
    numbers = {}
    for key, process in running.items():
        try:
            process.wait(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            numbers[key] = math.inf
        said, _ = process.communicate()
        # A job may end, and its folder go, while it is counted.
        if key not in numbers and said:
            numbers[key] = float(said.split()[0])
    return numbers


def mounts_below(path: str, *, itself: bool = False) -> list[str]:
    """Return the mounts below `path`, the innermost first, with `itself` at last what is there."""
    # Bytes: of text other characters would end a line or a field too, and people name mounts.
    with open(MOUNTINFO, "rb") as file:
        paths = [os.fsdecode(line.split(b" ")[4]) for line in file]
    # proc_pid_mountinfo(5): space, tab, newline and backslash are in octal.
    plain = [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mount) for mount in paths]
    # The table has no links; the folder above is root's.
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    below = [mount for mount in reversed(plain) if mount.startswith(f"{path}/")]
    return below + [mount for mount in plain if itself and mount == path]


def reached(path: str) -> int:
    """Return a descriptor of what is at a path without links, as the kernel's table has it.

    Another job of the same person may have put a link to anywhere into the place of a folder.

    Raises:
        OSError: there is a link on the way, or nothing, or the path leads back.

    """
    *folders, last = path.strip("/").split("/")
    if {".", ".."} & {*folders, last}:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    place = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name, kind in [*((folder, os.O_DIRECTORY) for folder in folders), (last, 0)]:
        try:
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | kind, dir_fd=place)
        finally:
            os.close(place)
        place = below
    return place


def unmount(path: str) -> int:
    """Unmount what is at a path, which may be in use, and follow no link; return the status."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        place = reached(path)
        # What is no mount is refused (EINVAL): a link is none.
        if libc.umount2(f"/proc/self/fd/{place}".encode(), MNT_DETACH) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    except OSError as error:
        say(f"{path} is not unmounted: {error.strerror}")
        return 1
    return 0


def mark(job: str) -> None:
    """Say that a job has begun since the boot. Raises ScratchError."""
    try:
        os.makedirs(MARKS, mode=0o700, exist_ok=True)
        os.close(os.open(f"{MARKS}/{job}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ScratchError(f"no mark for job {job}: {error}; look at /run") from error


def unmark(job: str) -> None:
    """Say that nothing of a job is left here."""
    with suppress(FileNotFoundError):
        os.unlink(f"{MARKS}/{job}")


def check(root: str | None, private: PrivateTmp | None) -> int:
    """Say whether jobs can have folders, nothing if they need none; return the exit status."""
    try:
        if root is not None:
            Scratch(root).check()
        if private is not None:
            private.make_ready()
        if root is not None:
            print(f"{root} takes folders")
    except ScratchError as error:
        print(error)
        return REFUSED
    return 0


def prepare(private: PrivateTmp, job: str, *, plugin: bool) -> None:
    """Make all ready for a job's private /tmp, or for its later steps to do without one."""
    try:
        private.make_ready()
        if not plugin:
            private.link_to_node(job)
    except ScratchError as error:
        if plugin:
            raise
        say(str(error))


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Do what slurmd or the health check asks for; return the exit status."""
    job, uid = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_UID", "")
    known = NUMBER.fullmatch(job) and NUMBER.fullmatch(uid)
    usage = "usage: scratch.py prolog|epilog, run by slurmd, or scratch.py check|unmount FOLDER"
    if arguments == ["--help"]:
        print(usage)
        return 0
    if arguments[:1] == ["unmount"] and len(arguments) == 2:
        return unmount(arguments[1])
    if arguments != ["check"] and (arguments not in (["prolog"], ["epilog"]) or not known):
        print(usage, file=sys.stderr)
        return 2
    try:
        root = tmp_fs()
        private = PrivateTmp(private_tmp(root, environment.get("SLURMD_NODENAME") or NODE))
        if arguments == ["check"]:
            is_private = any(setting(key) for key in ("JobContainerType", "NamespaceType"))
            return check(root, private if is_private else None)
        if arguments == ["prolog"]:
            mark(job)
            if root is not None:
                Scratch(root).make(job, int(uid))
            prepare(private, job, plugin=has_plugin(os.getppid()))
        else:
            if root is not None:
                Scratch(root).clear(job)
            private.clear(job)
            unmark(job)
    except ScratchError as error:
        say(str(error))
        # An epilog that fails drains the node, which can run the next jobs as before.
        return 0 if arguments == ["epilog"] else 1
    except Exception as error:  # whatever a job left: an epilog that fails drains the node
        if arguments != ["epilog"]:
            raise
        traceback.print_exc()
        say(f"what job {job} left may stay: {error!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
