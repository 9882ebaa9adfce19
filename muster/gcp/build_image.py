#!/usr/bin/python3
"""Make this VM ready for an image: install what image.yml says, clean up, power off.

The startup-script of a builder VM, so it is one file for Debian's own Python (3.11). It fetches the
image bundle that its metadata names, with the VM's own identity, and reports its progress in the
guest attribute muster/report. The output of its commands goes to the serial console.
"""

import contextlib
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# https://cloud.google.com/compute/docs/metadata/querying-metadata
METADATA = "http://metadata.google.internal/computeMetadata/v1/instance"
REPORT = "guest-attributes/muster/report"
# The variable that Google's Pulumi provider reads; on a VM in Google Cloud nobody sets it.
STORAGE = os.environ.get("GOOGLE_STORAGE_CUSTOM_ENDPOINT") or (
    "https://storage.googleapis.com/storage/v1/"
)

VENV = Path("/opt/muster/venv")
WORK = Path("/run/muster-build")
"""In memory: nothing of it gets into the image."""

FETCH_SECONDS, AGAIN_SECONDS = 450, 2
"""How long to try, and the pause: IAM roles granted a minute ago may not be in force yet.

Mostly they are within two minutes, sometimes after seven or more:
https://cloud.google.com/iam/docs/access-change-propagation
"""
REPORT_SECONDS = 2.0
"""Between two reports, except the last; a busy build has five tasks a second."""
APT_SECONDS, PIP_SECONDS, PLAY_SECONDS = 600, 600, 1800

APT = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=5"]

TIMERS = ("apt-daily", "apt-daily-upgrade")
"""Debian's own runs of apt, which hold its locks; the first one may come with the first boot."""

# Secrets, identities, caches and logs: what differs between VMs, or is of no use to them.
REMOVED = [
    "/etc/munge/munge.key",  # made by Debian's package
    "/etc/ssh/ssh_host_*",
    "/root/.ansible",
    "/root/.bash_history",
    "/root/.cache",
    "/root/.ssh",
    "/var/cache/apt/*.bin",
    "/var/cache/apt/archives/*.deb",
    "/var/lib/apt/lists/*",
    "/var/lib/dbus/machine-id",  # else a link to /etc/machine-id, which systemd recreates
    "/var/lib/dhcp/*",
    "/var/lib/systemd/credential.secret",
    "/var/lib/systemd/random-seed",
    "/var/log/journal/*",
]


class BuildError(Exception):
    """The build can't continue; the text is one sentence."""


def say(line: str) -> None:
    """Print a line; it goes to the serial console."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def call(url: str, headers: dict[str, str], method: str = "GET", body: str | None = None) -> bytes:
    """Return the body of an answer; OSError (urllib's errors too) if there is none."""
    data = body.encode() if body is not None else None
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            content: bytes = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{url}: the answer broke off: {error!r}") from error
    return content


def metadata(path: str, method: str = "GET", body: str | None = None) -> str:
    """Return what the metadata server has at a path below instance/."""
    return call(f"{METADATA}/{path}", {"Metadata-Flavor": "Google"}, method, body).decode()


def attribute(name: str) -> str:
    """Return an attribute of this VM."""
    return metadata(f"attributes/{name}")


class Report:
    """Progress reports for the laptop that waits."""

    def __init__(self) -> None:
        self.bundle = ""
        self._start = time.monotonic()
        self._next = 0.0

    def seconds(self) -> float:
        """How long it takes so far."""
        return time.monotonic() - self._start

    def step(self, title: str) -> None:
        """Report the current step, at most once in REPORT_SECONDS; a report may get lost."""
        say(f"=== {self.seconds():3.0f} s: {title}")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_SECONDS
            with contextlib.suppress(OSError):
                self._put("running", title)

    def end(self, state: str, step: str, message: str = "") -> None:
        """Report how the build ended; try again if that fails."""
        say(f"=== {state}: {message or step}")
        with contextlib.suppress(OSError):
            again(lambda: self._put(state, step, message), 60)

    def _put(self, state: str, step: str, message: str = "") -> None:
        report = {"bundle": self.bundle, "state": state, "step": step}
        metadata(REPORT, "PUT", json.dumps(report | ({"message": message} if message else {})))


def again(work: Callable[[], Any], seconds: float) -> Any:
    """Return what `work` returns, tried until it doesn't raise OSError, or the time is over."""
    end = time.monotonic() + seconds
    while True:
        try:
            return work()
        except OSError as error:
            # A missing object will not appear; a permission that was just granted may.
            missing = isinstance(error, urllib.error.HTTPError) and error.code == 404
            if missing or time.monotonic() > end:
                raise
            time.sleep(AGAIN_SECONDS)


def run(command: list[str], seconds: int, what: str, **environment: str) -> Iterator[str]:
    """Run a command, print its output and yield it line by line.

    Raises:
        BuildError: it failed, or didn't end in time.

    """
    last = ""
    with subprocess.Popen(
        ["timeout", "--kill-after=20", str(seconds), *command],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={
            **os.environ,
            "DEBIAN_FRONTEND": "noninteractive",
            "HOME": str(WORK),
            "LC_ALL": "C.UTF-8",
            **environment,
        },
    ) as process:
        for line in process.stdout or ():
            say(line.rstrip())
            yield line.rstrip()
            # apt: "E: ..."; pip: "ERROR: ..."
            if line.strip() and (not last.startswith("E") or line.startswith("E")):
                last = line.strip()
        code = process.wait()
    if code == 124:
        raise BuildError(f"{what}: no end after {seconds} s")
    if code != 0:
        raise BuildError(f"{what}: {last or f'exit status {code}'}")


def do(command: list[str], seconds: int, what: str) -> None:
    """Run a command to its end."""
    for _ in run(command, seconds, what):
        pass


def fetch(report: Report) -> None:
    """Unpack the bundle that the metadata names into WORK."""
    url = again(lambda: attribute("muster-bundle"), FETCH_SECONDS)
    match = re.fullmatch(r"gs://([^/]+)/(image-([0-9a-f]{64})\.tar\.gz)", url)
    if not match:
        raise BuildError(f"the attribute muster-bundle is no address of an image bundle: {url}")
    bucket, name, digest = match.groups()
    report.bundle = digest
    report.step("fetch the bundle")

    def get() -> bytes:
        token = json.loads(metadata("service-accounts/default/token"))["access_token"]
        path = f"b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        return call(f"{STORAGE}{path}", {"Authorization": f"Bearer {token}"})

    try:
        archive = again(get, FETCH_SECONDS)
    except OSError as error:
        refused = isinstance(error, urllib.error.HTTPError) and error.code == 403
        why = (
            f"; `pulumi up` lets the builder's account read it, which is not in force after "
            f"{FETCH_SECONDS} s: run it again"
        )
        raise BuildError(f"{url} can't be fetched: {error}{why if refused else ''}") from error
    if (actual := hashlib.sha256(archive).hexdigest()) != digest:
        raise BuildError(f"{url} has the SHA-256 {actual}: it was changed, so nothing of it is run")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(mode=0o700)
    # Not extractall: Debian 12's Python (3.11.2) has no filters, later ones require one.
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for entry in packed:
            path, content = WORK / entry.name, packed.extractfile(entry)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read() if content else b"")
            path.chmod(entry.mode)


def quieten_apt() -> None:
    """Prevent other runs of apt, and wait for one that has begun."""
    subprocess.run(["systemctl", "stop", *(f"{name}.timer" for name in TIMERS)], check=False)
    end = time.monotonic() + APT_SECONDS
    units = [f"{name}.service" for name in TIMERS]
    while True:
        done = subprocess.run(
            ["systemctl", "is-active", *units], capture_output=True, text=True, check=False
        )
        if not {"active", "activating"} & set(done.stdout.split()):
            return
        if time.monotonic() > end:
            raise BuildError(f"Debian's own run of apt has not ended after {APT_SECONDS} s")
        time.sleep(1)


def install_ansible(report: Report) -> None:
    """Make the virtual environment, which stays in the image."""
    report.step("wait for other runs of apt")
    quieten_apt()
    report.step("read Debian's package lists")
    # A list that can't be fetched is an error here, not a warning.
    update = [*APT, "-o", "APT::Update::Error-Mode=any", "update"]
    do(update, APT_SECONDS, "apt-get update")
    report.step("install python3-venv")
    packages = ["python3-venv", "python3-apt"]
    do([*APT, "install", "--no-install-recommends", *packages], APT_SECONDS, "apt-get install")
    report.step("make Muster's virtual environment")
    shutil.rmtree(VENV, ignore_errors=True)
    do(["/usr/bin/python3", "-m", "venv", str(VENV)], PIP_SECONDS, "python3 -m venv")
    lock = str(WORK / "requirements-vm.txt")
    options = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    quiet = ["--quiet", "--disable-pip-version-check", "--progress-bar=off"]
    command = [str(VENV / "bin/pip"), "install", *options, *quiet, "--requirement", lock]
    do(command, PIP_SECONDS, "pip install")


def play(report: Report) -> None:
    """Run image.yml on this VM.

    Raises:
        BuildError: a task failed; its title and its message.

    """
    settings = {
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_ROLES_PATH": str(WORK / "roles"),
        # python3-apt is a package of the system's Python.
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
    }
    playbook = str(WORK / "ansible/image.yml")
    command = [str(VENV / "bin/ansible-playbook"), "--connection=local", "-i", "localhost,"]
    title, problem = "image.yml", ""
    try:
        for line in run([*command, playbook], PLAY_SECONDS, "image.yml", **settings):
            if match := re.match(r"(?:TASK|PLAY) \[(.*)\] \**$", line):
                title = match[1]
                report.step(title)
            elif match := re.match(r"fatal: \[\S+\]: \w+! => (.*)$", line):
                problem = f"{title}: {message_of(match[1])}"
    except BuildError as error:
        raise BuildError(problem or str(error)) from error


def message_of(result: str) -> str:
    """Return what a failed task says, given its result as Ansible prints it."""
    try:
        said = json.loads(result).get("msg", result)
    except ValueError:
        return result
    return "; ".join(map(str, said)) if isinstance(said, list) else str(said)


def clean() -> None:
    """Remove what must not be in an image, this program too."""
    # From here on journald writes to memory: the last lines are printed, not kept.
    subprocess.run(["journalctl", "--relinquish-var"], check=False)
    for pattern in REMOVED:
        for path in Path("/").glob(pattern.removeprefix("/")):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in Path("/var/log").rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.truncate(path, 0)
    # Google's agent writes it at each boot: the builder's own name, and the project's.
    hosts, name = Path("/etc/hosts"), socket.gethostname().split(".")[0]
    lines = hosts.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not ("# Added by Google" in line and name in line)]
    hosts.write_text("".join(kept), encoding="utf-8")
    # Empty, not absent: at a "first boot" systemd would enable all units again.
    # https://www.freedesktop.org/software/systemd/man/latest/machine-id.html#First%20Boot%20Semantics
    Path("/etc/machine-id").write_text("", encoding="utf-8")
    folder = Path(__file__).resolve().parent
    if folder.name.startswith("metadata-scripts"):  # of Google's agent
        shutil.rmtree(folder)
    shutil.rmtree(WORK)
    os.sync()


def build(report: Report) -> None:
    """Run all steps.

    Raises:
        BuildError: a step failed; one sentence.

    """
    fetch(report)
    install_ansible(report)
    play(report)
    report.step("clean up")
    clean()


def main() -> None:
    """Build, report, and power off in any case."""
    report = Report()
    try:
        build(report)
    except BuildError as error:
        report.end("failed", "build the image", str(error))
    except Exception as error:  # any error must be reported
        report.end("failed", "build the image", f"{type(error).__name__}: {error}")
    else:
        report.end("done", f"built in {report.seconds():.0f} s")
    finally:
        subprocess.run(["systemctl", "poweroff"], check=False)


if __name__ == "__main__":
    main()
