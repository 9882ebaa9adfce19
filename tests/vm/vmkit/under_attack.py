"""On a machine: how long its daemons take to answer while a person's program runs, as JSON.

    python3 under_attack.py USER COMMAND...     # without a command: no attack

The attack ends by itself: while it runs, nobody may be able to log in and end it.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ASK = {
    # Unlike `scontrol ping` it fails where slurmctld does not answer.
    "slurmctld": ["sinfo", "--noheader"],
    "MariaDB": ["mariadb", "--batch", "--execute=SELECT 1"],
}

TRIES = 10
PATIENCE_SECONDS = 10

GROW_SECONDS = 30
"""Until an attack has all the memory that it can get, on an emulated CPU."""

LIMIT_SECONDS = 90
"""How much longer one with limits may take to meet them, on a busy host."""

ANSWER_SECONDS = 15
"""From then to the end of the attack."""

END_SECONDS = 120
"""Until its processes are gone."""

LOCK_ALL = 3
"""MCL_CURRENT | MCL_FUTURE of mlockall(2)."""


def answer(command: list[str]) -> float | None:
    """Seconds until the command has succeeded; None: it failed, or took too long."""
    begin = time.monotonic()
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return time.monotonic() - begin


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Return when it is done."""
    deadline = time.monotonic() + END_SECONDS
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def begin(user: str, command: list[str], person: Path) -> None:
    """Start a command as if the person did after a login by ssh."""
    session = ["--property=PAMName=sshd", f"--property=User={user}"]
    words = ["systemd-run", "--quiet", "--collect", "--no-block", *session, "--", *command]
    subprocess.run(words, check=True)
    wait_until(person.exists, "nobody has logged in")


def end_later(person: Path, seconds: float) -> int:
    """End all that the person runs after some time, however busy the machine is then."""
    kill = os.open(person / "cgroup.kill", os.O_WRONLY)
    if watchdog := os.fork():
        os.close(kill)
        return watchdog
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    assert ctypes.CDLL(None).mlockall(LOCK_ALL) == 0
    time.sleep(seconds)
    os.write(kill, b"1")
    os._exit(0)


def ask() -> dict[str, list[float | None]]:
    """Ask the daemons in turns, until one does not answer."""
    seconds: dict[str, list[float | None]] = {daemon: [] for daemon in ASK}
    for _ in range(TRIES):
        for daemon, command in ASK.items():
            seconds[daemon].append(answer(command))
        if any(tries[-1] is None for tries in seconds.values()):
            break
    return seconds


def counts(person: Path) -> dict[str, int]:
    """How much the person runs, and how much of it the kernel has ended because memory ran out."""
    try:
        events = (person / "memory.events").read_text().split()
        return {
            "processes": int((person / "pids.current").read_text()),
            "killed": int(events[events.index("oom_kill") + 1]),
        }
    except FileNotFoundError:
        # The attack has ended before the last answer came.
        return {}


def grow(person: Path, seconds: float) -> None:
    """Wait until the attack is at its largest: for so long at most where it has to meet a limit."""
    time.sleep(GROW_SECONDS)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not counts(person).get("killed"):
        time.sleep(1)


def main(user: str, *attack: str) -> None:
    """Start the attack, ask the daemons, and print what happened when the attack has ended."""
    result: dict[str, object] = {}
    if attack:
        uid = subprocess.run(["id", "-u", user], check=True, capture_output=True, text=True)
        person = Path(f"/sys/fs/cgroup/user.slice/user-{uid.stdout.strip()}.slice")
        begin(user, list(attack), person)
        limited = (person / "memory.max").read_text().strip() != "max"
        longer = LIMIT_SECONDS if limited else 0
        watchdog = end_later(person, GROW_SECONDS + longer + ANSWER_SECONDS)
        grow(person, longer)
    result["seconds"] = ask()
    if attack:
        result |= counts(person)
        # Without limits the watchdog may have been first.
        with suppress(FileNotFoundError):
            (person / "cgroup.kill").write_text("1")
        os.kill(watchdog, signal.SIGKILL)
        os.waitpid(watchdog, 0)
        wait_until(lambda: not person.exists(), "its processes do not end")
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
