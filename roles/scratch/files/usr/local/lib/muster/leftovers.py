#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Ends what a person left on this node, when the last of their jobs here has ended.

Run by slurmd as root, as a part of Epilog, with the job in the environment. It is for the people
who may not log in to this node and so have nothing here but jobs (the role `users` lists them, and
says whether people of a directory are like them; on a VM of the cloud that is everybody):

* their processes that belong to no job are killed;
* if no other job of theirs is here, so are their files in the folders that all can write to, and
  their System V IPC: shared memory, semaphores, message queues. What their programs have mounted in
  these folders (FUSE) is unmounted first.

What has one of their subordinate numbers (subuid(5)) is theirs too.

Only what is older than the question for other jobs is removed: a job that starts meanwhile keeps
what it makes. slurmctld is asked only if there is something to remove. Never fails: a failed epilog
drains the node. Files that take longer than a minute to remove keep no node from its next job.

Python's standard library alone: it runs with the system's Python 3.10 and later.
"""

import os
import pwd
import re
import secrets
import signal
import subprocess
import sys
import syslog
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NO_LOGIN = "/etc/security/muster-no-login"
NO_LOGIN_DIRECTORY = "/etc/security/muster-no-login-directory"
"""It is there where people of a directory may not log in either, who are in no list."""
LOCAL_ACCOUNTS = "/etc/passwd"
CLOUD_NODE = "/run/muster-node/slurmd"
FIRST_PERSON = 1000
"""Lower numbers are the system's (Debian policy 9.2.2)."""
SUBORDINATES = "/etc/subuid"
FIRST_SUBORDINATE = 524288
"""The first subordinate number: nobody who logs in has it, or a larger one."""
MOUNTINFO = "/proc/self/mountinfo"
UNMOUNT = ["/usr/local/lib/muster/scratch.py", "unmount"]
REMOVE = ["/usr/bin/xargs", "--null", "/usr/bin/rm", "-rf", "--one-file-system", "--"]
"""rm follows no link, and below what it is given it enters no other file system."""
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")  # noqa: S108 (not to write there)
SYSV = {"shm": "--shmem-id", "sem": "--semaphore-id", "msg": "--queue-id"}
"""Kind in /proc/sysvipc, and ipcrm's option for it."""

DEATH_S = 10.0
ASK_S = 20.0
TRIES = 3
PAUSE_S = 5.0
REMOVAL_S = 60.0
"""How long to wait for all removals together; that of files then goes on."""

SLURM_S_OWN = re.compile(
    r"/job_[0-9]+(/|$)|/slurmd\.service(/|$)|/[^/]*slurmstepd\.scope(/|$)", re.M
)
"""Of the lines of /proc/PID/cgroup: a job's, by cgroup v1 or v2, or what slurmd and its steps are
about to put into one."""


class Leftover(NamedTuple):
    """A thing that can outlive its maker."""

    name: str
    changed: float
    """Seconds since the epoch."""
    remove: list[str]
    """The command that removes it; empty for a file or folder."""


def say(text: str) -> None:
    """Write to the journal, since SLURM keeps little of a program's output."""
    # Names that people gave may be no text, or have line breaks in them.
    text = text.encode("unicode_escape").decode()
    syslog.openlog("muster-leftovers")
    syslog.syslog(syslog.LOG_WARNING, text)
    print(text, file=sys.stderr)


def works_by_jobs_alone(uid: int) -> bool:
    """Whether the person with this number has nothing to do here outside of jobs."""
    if os.path.exists(CLOUD_NODE):
        return uid >= FIRST_PERSON
    if os.path.exists(NO_LOGIN_DIRECTORY) and uid >= FIRST_PERSON and not _is_local(uid):
        return True
    try:
        return pwd.getpwuid(uid).pw_name in _read(NO_LOGIN).split()
    except KeyError:
        return False


def _is_local(uid: int) -> bool:
    """Whether a number is that of an account of this host: nobody's directory is asked."""
    accounts = (line.split(":") for line in _read(LOCAL_ACCOUNTS).splitlines())
    return any(fields[2:3] == [str(uid)] for fields in accounts)


def numbers(uid: int) -> list[range]:
    """Return the numbers of a person: their own, and their subordinate ones."""
    try:
        owners = {str(uid), pwd.getpwuid(uid).pw_name}
    except KeyError:
        owners = {str(uid)}
    own = [range(uid, uid + 1)]
    for line in _read(SUBORDINATES).splitlines():
        owner, _, rest = line.partition(":")
        found = re.fullmatch("([0-9]+):([0-9]+)", rest)
        if owner in owners and found and int(found[1]) >= FIRST_SUBORDINATE:
            own.append(range(int(found[1]), int(found[1]) + int(found[2])))
    return own


def _is_among(number: int | None, own: list[range]) -> bool:
    return any(number in some for some in own)


def processes(uid: int) -> Iterator[int]:
    """Yield the processes of a person: those that are on their account, whatever they became."""
    own = numbers(uid)
    for name in os.listdir("/proc"):
        if name.isdigit() and _is_among(_real_uid(name), own):
            yield int(name)


def _real_uid(pid: str) -> int | None:
    status = _read(f"/proc/{pid}/status")
    found = re.search(r"^State:\s+([A-Z])[\s\S]*^Uid:\s+([0-9]+)", status, re.M)
    # What is dead already waits for its parent.
    return int(found[2]) if found and found[1] not in "ZX" else None


def _read(path: str) -> str:
    """Return a file's text; people give names to processes and mounts, of whatever bytes."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read())
    except (FileNotFoundError, ProcessLookupError):
        return ""


def end_strays(uid: int) -> None:
    """Kill the processes of a person that belong to no job, until none is left."""
    end = time.monotonic() + DEATH_S
    while strays := [pid for pid in processes(uid) if _is_stray(pid)]:
        for pid in strays:
            _kill(pid, uid)
        if time.monotonic() > end:
            say(f"processes of {uid} don't die: {strays}")
            return
        time.sleep(0.1)


def _is_stray(pid: int) -> bool:
    groups = _read(f"/proc/{pid}/cgroup")
    return bool(groups) and not SLURM_S_OWN.search(groups)


def await_death(uid: int, job: str) -> None:
    """Wait until no process of a person is in this job: they are killed, but can still be dying."""
    of_job = re.compile(rf"/job_{job}(/|$)", re.M)
    end = time.monotonic() + DEATH_S
    while dying := [pid for pid in processes(uid) if of_job.search(_read(f"/proc/{pid}/cgroup"))]:
        if time.monotonic() > end:
            say(f"processes of {uid} in job {job} don't die: {dying}")
            return
        time.sleep(0.1)


def _kill(pid: int, uid: int) -> None:
    """Kill a process, if its number is still that of a stray of this person."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _is_among(_real_uid(str(pid)), numbers(uid)) and _is_stray(pid):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            say(f"killed process {pid} of {uid}, which was in no job")
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def leftovers(uid: int) -> Iterator[Leftover]:
    """Yield what a person has in the folders for all, and their System V IPC."""
    own = numbers(uid)
    for folder in FOLDERS:
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                # It has gone, or it is a mount of a program (FUSE), which shows nobody else what it
                # has, and nobody anything when it has ended.
                continue
            if _is_among(state.st_uid, own):
                yield Leftover(entry.path, state.st_ctime, [])
    for kind, option in SYSV.items():
        head, *rows = _read(f"/proc/sysvipc/{kind}").splitlines() or [""]
        for row in rows:
            about = dict(zip(head.split(), row.split(), strict=True))
            # Whose it is, or who made it: the maker may have given it away.
            if any(_is_among(int(about[who]), own) for who in ("uid", "cuid")):
                number = about[f"{kind}id" if kind != "msg" else "msqid"]
                yield Leftover(f"{kind} {number}", float(about["ctime"]), ["ipcrm", option, number])


def mounts(uid: int) -> Iterator[str]:
    """Yield what programs of a person have mounted (FUSE) in the folders for all."""
    below = tuple(f"{folder}/" for folder in FOLDERS)
    for path, kind, options in _mounted():
        is_theirs = kind.startswith("fuse") and f"user_id={uid}" in options.split(",")
        if is_theirs and path.startswith(below):
            yield path


def _mounted() -> Iterator[tuple[str, str, str]]:
    """Yield all mount points, each with its type and the options of its file system."""
    for line in filter(None, _read(MOUNTINFO).split("\n")):
        before, _, after = line.partition(" - ")
        # proc_pid_mountinfo(5): space, tab, newline and backslash are in octal, and nothing else
        # that Python would take for the end of a word or a line.
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        kind, _, options = after.split(" ")[:3]
        yield path, kind, options


def other_jobs(uid: int, job: str, node: str) -> list[str] | None:
    """Return the jobs of a person that run on this node besides `job`; None: not known."""
    # Without those that are ending: of two that end together each would leave it to the other.
    command = ["squeue", "--noheader", f"--nodelist={node}", f"--user={uid}", "--format=%A"]
    command += ["--states=RUNNING,SUSPENDED,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT,RESIZING"]
    # No later epilog asks again, if this was the last job.
    for number in range(TRIES):
        time.sleep(PAUSE_S if number else 0)
        try:
            done = _run(command, ASK_S)
        except subprocess.TimeoutExpired as error:
            say(f"squeue: {error}")
            continue
        if done.returncode == 0:
            return [other for other in done.stdout.split() if other != job]
        say(f"squeue: {done.stderr.strip()}")
    return None


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def clean(uid: int, job: str, node: str) -> None:
    """Leave nothing of a person behind, if this was the last of their jobs here."""
    end_strays(uid)
    await_death(uid, job)
    # Of another job, whose epilog follows.
    if any(processes(uid)):
        return
    now = time.time()
    found = [thing for thing in leftovers(uid) if thing.changed < now]
    mounted = list(mounts(uid))
    if not (found or mounted) or other_jobs(uid, job, node) != []:
        return
    end = time.monotonic() + REMOVAL_S
    _run_each([(thing.name, thing.remove) for thing in found if thing.remove], uid, end)
    _run_each([(f"the mount {path}", [*UNMOUNT, path]) for path in mounted], uid, end)
    if mounted:
        # The folders that were below.
        found = [thing for thing in leftovers(uid) if thing.changed < now]
    if files := [thing.name for thing in found if not thing.remove]:
        _remove(files, uid, end)


def _run_each(things: list[tuple[str, list[str]]], uid: int, end: float) -> None:
    """Run the command of each thing that removes it, as long as there is time."""
    for number, (name, command) in enumerate(things):
        left = end - time.monotonic()
        if left <= 0:
            say(f"{name} of {uid} and {len(things) - number - 1} more stay: they took too long")
            return
        try:
            done = _run(command, left)
        except (OSError, subprocess.TimeoutExpired) as error:
            say(f"{name} of {uid} stays: {error}")
            continue
        if done.returncode != 0:
            say(f"{name} of {uid} stays: {done.stderr.strip()}")


def _remove(paths: list[str], uid: int, end: float) -> None:
    """Remove files and folders; what takes longer goes on, where no new job looks for its own.

    Not where something is mounted, by root: rm would empty it, and its path must not change.
    """
    places = [place for place, *_ in _mounted()]
    kept = [path for path in paths if any(f"{place}/".startswith(f"{path}/") for place in places)]
    if kept:
        say(f"{kept[0]} of {uid} and {len(kept) - 1} more stay: something is mounted there")
    hidden = [_hide(path) for path in paths if path not in kept]
    with open(os.memfd_create("leftovers"), "w+b") as names:
        names.write(b"\0".join(map(os.fsencode, hidden)))
        names.seek(0)
        # In its own session, without inherited streams: slurmd waits for both to end.
        process = subprocess.Popen(
            REMOVE,
            stdin=names,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    try:
        process.wait(timeout=max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        say(f"what {uid} left is still being removed")
        return
    if stay := [path for path in hidden if os.path.lexists(path)]:
        say(f"{stay[0]} of {uid} and {len(stay) - 1} more stay: rm could not remove them")


def _hide(path: str) -> str:
    """Rename a file or folder to what no program calls its own; return its path."""
    hidden = f"{os.path.dirname(path)}/.muster-left-{secrets.token_hex(8)}"
    try:
        os.rename(path, hidden)
    except OSError:
        # It has gone, or it is a message queue, which keeps its name.
        return path
    return hidden


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Do what slurmd asks for; return the exit status."""
    if arguments:
        print("usage: leftovers.py, run by slurmd as a part of Epilog")
        return 0 if arguments == ["--help"] else 2
    job, uid = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_UID", "")
    node = environment.get("SLURMD_NODENAME", "")
    if not (job.isdigit() and uid.isdigit() and node):
        say("SLURM_JOB_ID, SLURM_JOB_UID and SLURMD_NODENAME are not in the environment")
        return 0
    try:
        if works_by_jobs_alone(int(uid)):
            clean(int(uid), job, node)
    except OSError as error:
        say(f"what {uid} left stays: {error}")
    except Exception as error:  # whatever people left here: a failed epilog drains the node
        traceback.print_exc()
        say(f"what {uid} left may stay: {error!r}")
    return 0


if __name__ == "__main__":
    # slurmd gives its programs a PATH of its own, or none.
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    sys.exit(main(sys.argv[1:], os.environ))
