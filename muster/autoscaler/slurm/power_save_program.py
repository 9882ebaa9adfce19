#!/usr/bin/python3 -IS
"""ResumeProgram, SuspendProgram and ResumeFailProgram: write SLURM's request into the spool.

One program with three names; slurmctld calls `muster-resume HOSTLIST` as user slurm, with only
SLURM_CONF and SLURM_RESUME_FILE in the environment. It writes one file, wakes the daemon and ends.
A daemon that doesn't run reads the file when it starts; slurmctld never waits.

Starting Python takes most of its time, so it imports only what it needs: no site-packages, and
neither json nor socket, which take as long as all the rest.

Exit status: 0 the request is in the spool, 1 it is not, 2 wrong arguments.
"""

import os
import sys
import time

SPOOL = "/var/spool/muster-autoscaler"
WAKE = "wake"
"""A FIFO in the spool: a byte written to it wakes the daemon, which reads from it."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""A file that is different after each boot: random(4)."""

PROGRAMS = {
    "muster-resume": "resume",
    "muster-suspend": "suspend",
    "muster-resume-failed": "resume-failed",
}
HOSTLIST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,[]")
"""The characters of a hostlist; none needs an escape in a JSON string."""


def main(words: list[str], spool: str = SPOOL) -> int:
    """Run the program called `words[0]`; return its exit status."""
    name = os.path.basename(words[0])
    if name not in PROGRAMS or len(words) != 2 or not words[1] or not HOSTLIST.issuperset(words[1]):
        print(f"usage: {' | '.join(PROGRAMS)} HOSTLIST", file=sys.stderr)
        return 2
    try:
        write(spool, PROGRAMS[name], words[1], resume_file())
    except OSError as error:
        complain(
            name,
            f"{words[1]} can't be written to the spool: {error}; make room there or run site.yml. "
            "The daemon still handles the nodes, as it reads their states from slurmctld",
        )
        return 1
    finally:
        wake(spool)
    return 0


def resume_file() -> bytes:
    """Return SLURM_RESUME_FILE, which only ResumeProgram gets: which job waits for which node.

    Read at once: the file is gone when slurmctld ends, https://slurm.schedmd.com/power_save.html#tolerance
    """
    path = os.environ.get("SLURM_RESUME_FILE")
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        # The request names the nodes without it.
        return f"can't be read: {error}".encode()


def write(spool: str, program: str, nodes: str, more: bytes) -> None:
    """Write a file into the spool, complete or not at all; its name has the time and the process.

    Its first line has the time twice: by the system clock, which may be set, and as seconds since
    the boot (CLOCK_BOOTTIME) with the boot's id.

    It is not synced to the disk, which takes longer than all the rest. If the machine goes down,
    slurmctld's own state still has the request (or has lost it too: it is written every 5 s).

    Raises:
        OSError: it can't be written.

    """
    name = f"{time.time_ns()}-{os.getpid()}.{program}"
    with open(BOOT_ID, "rb") as file:
        boot = file.read().decode().strip()
    head = (
        f'{{"program": "{program}", "nodes": "{nodes}", "asked": {time.time():.3f}, '
        f'"boot": "{boot}", "since_boot": {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}}}\n'
    )
    unfinished = f"{spool}/{name}.new"
    try:
        with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(head.encode() + more)
        os.rename(unfinished, f"{spool}/{name}")
    except OSError:
        try:
            os.unlink(unfinished)
        except OSError:
            pass
        raise


def wake(spool: str) -> None:
    """Wake the daemon; no error if it doesn't run or the FIFO is full."""
    try:
        fifo = os.open(f"{spool}/{WAKE}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fifo, b".")
        finally:
            os.close(fifo)
    except OSError:
        pass


def complain(name: str, sentence: str) -> None:
    """Print an error, and write it to the journal: slurmctld drops what its programs print."""
    import syslog  # only here, to start faster

    syslog.openlog(name)
    syslog.syslog(syslog.LOG_ERR, sentence)
    print(f"{name}: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
