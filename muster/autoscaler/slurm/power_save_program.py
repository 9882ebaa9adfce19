#!/usr/bin/python3 -IS
"""ResumeProgram, SuspendProgram and ResumeFailProgram: put what SLURM asks for into the spool.

One program with three names; `muster-resume HOSTLIST` is called by slurmctld as user slurm, with
an empty environment but for SLURM_CONF and SLURM_RESUME_FILE. It writes one file, wakes the daemon
and ends. A daemon that is away finds the file when it comes back; slurmctld never waits.

The start of Python is most of its time, so it imports no more than it must: no site-packages, no
json and no socket, which alone take as long as all the rest.

Exit status: 0 it is in the spool, 1 it is not, 2 the program was called wrongly.
"""

import os
import sys
import time

SPOOL = "/var/spool/muster-autoscaler"
WAKE = "wake"
"""A FIFO in the spool: who writes to it wakes the daemon that reads from it."""

PROGRAMS = {
    "muster-resume": "resume",
    "muster-suspend": "suspend",
    "muster-resume-failed": "resume-failed",
}
HOSTLIST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,[]")
"""What a hostlist is made of; none of it has a meaning in a JSON string."""


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
            f"{words[1]} is not in the spool: {error}; make room there or run site.yml. The nodes "
            "are looked after all the same: the daemon asks slurmctld for their states",
        )
        return 1
    finally:
        wake(spool)
    return 0


def resume_file() -> bytes:
    """Return which job waits for which node, as SLURM says it to ResumeProgram alone.

    Read at once: the file ends with slurmctld, https://slurm.schedmd.com/power_save.html#tolerance
    """
    path = os.environ.get("SLURM_RESUME_FILE")
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        # Which nodes are wanted is known without it.
        return f"can't be read: {error}".encode()


def write(spool: str, program: str, nodes: str, more: bytes) -> None:
    """Put a file into the spool, whole or not at all; its name is the time and this process.

    Not synced to the disk: that takes longer than all the rest, and what a machine that goes down
    loses, slurmctld's own state still says (or has lost as well: it is written every 5 s).

    Raises:
        OSError: it can't be written.

    """
    name = f"{time.time_ns()}-{os.getpid()}.{program}"
    head = f'{{"program": "{program}", "nodes": "{nodes}", "asked": {time.time():.3f}}}\n'
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
    """Wake the daemon; where none is, or it has been told more than it can read, it is no error."""
    try:
        fifo = os.open(f"{spool}/{WAKE}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fifo, b".")
        finally:
            os.close(fifo)
    except OSError:
        pass


def complain(name: str, sentence: str) -> None:
    """Say what is wrong, also in the journal: slurmctld throws away what its programs print."""
    import syslog  # only now

    syslog.openlog(name)
    syslog.syslog(syslog.LOG_ERR, sentence)
    print(f"{name}: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
