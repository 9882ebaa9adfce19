"""No secret of the definition gets where others can read it."""

import base64
import re
import subprocess
import threading
from pathlib import Path

import secret_search
from conftest import ROOT, Lab
from secret_search import found


def secrets_of(lab: Lab) -> dict[str, str]:
    """Return the names and values of secrets.yml."""
    text = (lab.instance.folder / "group_vars/all/secrets.yml").read_text(encoding="utf-8")
    values = dict(re.findall(r"^  (\w+): (\S+)$", text, re.M))
    assert set(values) == {"munge_key", "slurmdbd_password"}
    return values


def values_of(lab: Lab) -> dict[str, list[bytes]]:
    """Return the secrets as bytes, the key also as munge has it."""
    values = {name: [text.encode()] for name, text in secrets_of(lab).items()}
    values["munge_key"].append(base64.b64decode(values["munge_key"][0]))
    return values


def files_on(lab: Lab, host: str, values: list[bytes]) -> list[str]:
    """Return mode and path of each file of a host that has one of the values."""
    folders = ["/etc", "/var", "/root", "/tmp", "/run", "/home", "/apps"]
    program = Path(secret_search.__file__).read_text(encoding="utf-8")
    program += f"\nfor line in files_with({values!r}, {folders!r}):\n    print(line)\n"
    return lab.on(host, f"python3 - <<'END'\n{program}END", timeout=300).splitlines()


def watch_arguments(stop: threading.Event, seen: set[bytes]) -> None:
    """Collect the arguments of all processes of this machine, the containers' included."""
    while not stop.is_set():
        # A pattern for these folders could name files of processes that have ended.
        for process in Path("/proc").glob("[0-9]*"):
            try:
                seen.add((process / "cmdline").read_bytes())
            except OSError:
                continue


def test_secret_is_in_no_output_log_argument_or_readable_file(lab: Lab) -> None:
    stop, seen = threading.Event(), set[bytes]()
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
    assert any(b"AnsiballZ" in line or b"ansible" in line for line in seen)
    # With a credential of root anybody is root to slurmctld for five minutes.
    assert "the cluster works" in run.output
    assert "MUNGE:" not in run.output

    for name, values in values_of(lab).items():
        assert found(run.output.encode(), values) == []
        assert [line for line in seen if found(line, values)] == []
        for host in ("lab-access", "lab-cpu-01"):
            logs = "journalctl --no-pager --all -o cat; cat /var/log/*.log /var/log/*/*.log"
            journal = lab.on(host, f"({logs}) | base64 --wrap=0")
            assert found(base64.b64decode(journal), values) == []
            files = files_on(lab, host, values)
            # Only root and the daemon that needs a secret may read it.
            assert [line for line in files if line[7:10] != "---"] == []
            # A node has no use for the database's password.
            if name == "slurmdbd_password":
                assert bool(files) == (host == "lab-access")
            else:
                assert "-r-------- /etc/munge/munge.key" in files


PLANTED = {
    "raw": "cat /etc/munge/munge.key",
    "hex": "od -An -v -tx1 /etc/munge/munge.key",
    "base64": "base64 /etc/munge/munge.key",
}


def test_the_search_finds_a_planted_key_in_each_form(lab: Lab) -> None:
    plant = "; ".join(f"{command} >/tmp/planted-{form}" for form, command in PLANTED.items())
    lab.on("lab-cpu-01", f"umask 022; {plant}")
    files = files_on(lab, "lab-cpu-01", values_of(lab)["munge_key"])
    lab.on("lab-cpu-01", "rm /tmp/planted-*")
    for form in PLANTED:
        assert f"-rw-r--r-- /tmp/planted-{form}" in files


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
