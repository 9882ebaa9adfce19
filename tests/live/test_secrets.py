"""No secret of the definition gets where others can read it."""

import base64
import re
import subprocess
import threading
from pathlib import Path

from conftest import ROOT, Lab


def secrets_of(lab: Lab) -> dict[str, str]:
    """Return the names and values of secrets.yml."""
    text = (lab.instance.folder / "group_vars/all/secrets.yml").read_text(encoding="utf-8")
    values = dict(re.findall(r"^  (\w+): (\S+)$", text, re.M))
    assert set(values) == {"munge_key", "slurmdbd_password"}
    return values


def shapes(value: str) -> list[str]:
    """Return a secret as it is, and as base64 of any text that has it: so modules get files."""
    # What is before it in the text moves it by up to two bytes; the groups at its ends have others.
    moved = [base64.b64encode(b"?" * bytes_ahead + value.encode()) for bytes_ahead in range(3)]
    return [value, *(text.decode()[4:-4] for text in moved)]


def watch_arguments(stop: threading.Event, seen: set[str]) -> None:
    """Collect the arguments of all processes of this machine, the containers' included."""
    while not stop.is_set():
        # A pattern for these folders could name files of processes that have ended.
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            seen.add(line.replace(b"\0", b" ").decode(errors="replace"))


def test_secret_is_in_no_output_log_argument_or_readable_file(lab: Lab) -> None:
    stop, seen = threading.Event(), set()
    watcher = threading.Thread(target=watch_arguments, args=(stop, seen))
    watcher.start()
    try:
        # All tasks that use a secret run again, with the verbosity that people use.
        for host in ("lab-access", "lab-cpu-01"):
            lab.on(host, "rm /etc/munge/munge.key")
        lab.on("lab-access", "rm /etc/slurm/slurmdbd.conf")
        run = lab.play("-vvv", "--diff", "--limit", "lab-access,lab-cpu-01")
    finally:
        stop.set()
        watcher.join()
    assert run.code == 0, run.output[-4000:]
    assert any("AnsiballZ" in line or "ansible" in line for line in seen)
    # With a credential of root anybody is root to slurmctld for five minutes.
    assert "the cluster works" in run.output
    assert "MUNGE:" not in run.output

    for name, value in secrets_of(lab).items():
        for shape in shapes(value):
            assert shape not in run.output
            assert not [line for line in seen if shape in line]
        searched = " ".join(f"-e {shape}" for shape in shapes(value))
        for host in ("lab-access", "lab-cpu-01"):
            journal = lab.on(
                host, "journalctl --no-pager -o cat; cat /var/log/*.log /var/log/*/*.log"
            )
            assert not [shape for shape in shapes(value) if shape in journal]
            readable = lab.on(
                host,
                f"grep -rlsF {searched} /etc /var /root /tmp /run /home /apps "
                "| xargs -r stat -c '%A %U %n'",
            )
            # Only root and the daemon that needs a secret may read it.
            assert all(line[7:10] == "---" for line in readable.splitlines()), readable
            # A node has no use for the database's password.
            if name == "slurmdbd_password":
                assert bool(readable) == (host == "lab-access")


def test_secret_is_not_in_the_repository(lab: Lab) -> None:
    patterns = [word for value in secrets_of(lab).values() for word in ("-e", value)]
    tracked = subprocess.run(
        ["git", "grep", "-lF", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tracked.returncode == 1, tracked.stdout
    ignored = subprocess.run(
        ["git", "check-ignore", "inventories/lab/group_vars/all/secrets.yml"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert ignored.returncode == 0
