"""A VM on a fakecloud that configures itself in a thread of this process.

Everything is real but ansible-playbook: what stands for it does what the bundle's play.json says.
"""

import base64
import gzip
import hashlib
import http.client
import io
import json
import socket
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from muster_sandbox.fakecloud.server import Server

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "roles/cloud_vm/files"))

from muster_configure import cloud as guest  # noqa: E402
from muster_configure import configurer, keys, playbook, report, wanted  # noqa: E402

BASE = "/compute/v1/projects/demo-project"
ZONE = "zones/europe-west4-a"
REGION = "regions/europe-west4"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ADDRESS = "127.0.0.2"
BUCKET = "slurm10-bundles"
ROLES = {
    "controller": ["secretmanager.secretAccessor", "secretmanager.secretVersionAdder"],
    "login": ["secretmanager.secretAccessor"],
}
SECONDS = 20
"""Bound of whatever a test waits for."""

PLAY = """#!{python}
import json, os, sys, time
from pathlib import Path
seen = Path({seen!r})
variables = Path(sys.argv[sys.argv.index("--extra-vars") + 1].removeprefix("@"))
run = {{"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd(),
       "mode": oct(variables.stat().st_mode & 0o777),
       "variables": json.loads(variables.read_text())}}
with seen.open("a") as file:
    file.write(json.dumps(run) + "\\n")
play = json.loads(Path("play.json").read_text())
for event in play["events"]:
    if "until" in event:
        while not Path(event["until"]).exists():
            time.sleep(0.02)
    else:
        os.write(int(os.environ["MUSTER_PROGRESS_FD"]), json.dumps(event).encode() + b"\\n")
sys.exit(play["code"])
"""


# The environment's Python. What it says of a definition is kept: it takes half a second to start.
PYTHON = """#!/bin/sh
files=$(find inventory -name '*.yml' | sort)
kept={answers}/$({{ echo "$@"; cat $files; }} | sha256sum | cut -c -64)
if [ ! -e "$kept" ]; then
    mkdir "$kept.$$"
    {python} "$@" >"$kept.$$/out" 2>"$kept.$$/err"
    echo $? >"$kept.$$/code"
    mv "$kept.$$" "$kept"
fi
cat "$kept/out"
cat "$kept/err" >&2
exit "$(cat "$kept/code")"
"""


def digest_of(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()


def bundle(events: list[dict[str, str]] | None = None, code: int = 0, **files: str) -> bytes:
    """A machine bundle whose play has these events and this exit code."""
    definition = ROOT / "inventories/cloud/group_vars/all/cluster.yml"
    contents = {
        "ansible.cfg": "[defaults]\n",
        "inventory/group_vars/all/cluster.yml": definition.read_text(),
        "play.json": json.dumps({"events": events or [{"task": "Do it"}], "code": code}),
        **files,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


class _FromAddress(urllib.request.HTTPHandler):
    """Requests that come from the VM's address."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        def connect(host: str, timeout: float) -> http.client.HTTPConnection:
            return http.client.HTTPConnection(host, timeout=timeout, source_address=(ADDRESS, 0))

        return self.do_open(connect, request)


class Vm:
    """The VM: what it sees, what it has, and what the outside does to it."""

    def __init__(self, server: Server, folder: Path, answers: Path) -> None:
        """`answers`: folder of what Muster says of definitions, for all VMs."""
        self.server = server
        self.folder = folder
        self.answers = answers
        self.notice = folder / "motd.d" / "muster"
        self.opt = folder / "opt"
        self.runs_file = folder / "runs"
        self.unreachable = False
        """Whether the metadata server is away."""
        self.log: list[str] = []
        self.broadcasts: list[str] = []
        self.http = httpx.Client(
            base_url=server.url, headers={"Authorization": "Bearer owner"}, trust_env=False
        )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _FromAddress)
        self._listening: socket.socket | None = None
        self._make_venv()

    def close(self) -> None:
        """Close what this has open."""
        self.http.close()
        self.deaf()

    def listen(self, port: int = 0) -> int:
        """Listen at the controller's address, as slurmctld would; return the port."""
        self._listening = socket.create_server((ADDRESS, port))
        return int(self._listening.getsockname()[1])

    def deaf(self) -> None:
        """Listen no more."""
        if self._listening:
            self._listening.close()

    def forget_report(self) -> None:
        address = f"{self.server.metadata_url}/computeMetadata/v1/instance/guest-attributes/"
        request = urllib.request.Request(  # noqa: S310 (ours)
            f"{address}muster/report", headers=guest.FLAVOR, method="DELETE"
        )
        self._opener.open(request, timeout=SECONDS).close()

    def _make_venv(self) -> None:
        bin_ = self.folder / "venv/bin"
        bin_.mkdir(parents=True)
        python = bin_ / "python"
        # PYTHONPATH is the bundle's here; the package is installed beside this Python.
        python.write_text(PYTHON.format(answers=self.answers, python=sys.executable))
        program = bin_ / "ansible-playbook"
        program.write_text(PLAY.format(python=sys.executable, seen=str(self.runs_file)))
        for file in (python, program):
            file.chmod(0o755)
        (self.folder / "private").mkdir(mode=0o700)
        keys_folder = self.folder / "ssh"
        keys_folder.mkdir()
        (keys_folder / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAAkey root@vm\n")

    def call(self, verb: str, path: str, **more: Any) -> Any:
        answer = self.http.request(verb, path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def raise_(self, role: str = "controller", *, secrets: bool = True, **attributes: str) -> None:
        """Make network, bucket, secrets without a version, and the VM."""
        compute = f"{BASE}/{REGION}/subnetworks"
        network = {"name": "lab", "autoCreateSubnetworks": False}
        self.call("POST", f"{BASE}/global/networks", json=network)
        subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "127.0.0.0/24"}
        self.call("POST", compute, json=subnet)
        self.call(
            "POST", "/storage/v1/b", params={"project": "demo-project"}, json={"name": BUCKET}
        )
        for name in ("munge-key", "slurmdbd-password", "mail-password") if secrets else ():
            self.call(
                "POST",
                "/secretmanager/v1/projects/demo-project/secrets",
                params={"secretId": f"slurm10-{name}"},
                json={"replication": {"automatic": {}}},
            )
        self.name = f"slurm10-{role}" + ("-0" if role == "login" else "")
        every = {
            "enable-guest-attributes": "TRUE",
            "muster-cluster": "slurm10",
            "muster-role": role,
            "muster-hosts": json.dumps({"slurm10-controller": ADDRESS}),
        }
        body = {
            "name": self.name,
            "machineType": f"{ZONE}/machineTypes/n1-standard-2",
            "networkInterfaces": [
                {"subnetwork": f"{REGION}/subnetworks/lab", "networkIP": ADDRESS}
            ],
            "disks": [
                {
                    "boot": True,
                    "initializeParams": {
                        "sourceImage": "projects/debian-cloud/global/images/family/debian-12"
                    },
                }
            ],
            "serviceAccounts": [{"email": self._account(role), "scopes": [SCOPE]}],
            "metadata": {"items": _items(every | attributes)},
        }
        self.call("POST", f"{BASE}/{ZONE}/instances", json=body)

    def _account(self, role: str) -> str:
        """A service account that may do what the VMs of a role do, and no more."""
        email = self.call(
            "POST", "/iam/v1/projects/demo-project/serviceAccounts", json={"accountId": "its-vms"}
        )["email"]
        project = "/cloudresourcemanager/v1/projects/demo-project"
        policy = self.call("POST", f"{project}:getIamPolicy", json={})
        for name in ("storage.objectViewer", *ROLES[role]):
            member = f"serviceAccount:{email}"
            policy["bindings"].append({"role": f"roles/{name}", "members": [member]})
        self.call("POST", f"{project}:setIamPolicy", json={"policy": policy})
        return str(email)

    def upload(self, archive: bytes, digest: str | None = None) -> str:
        """Put a bundle into the bucket, under another digest if one is given; its address."""
        name = f"bundle-{digest or digest_of(archive)}.tar.gz"
        self.call(
            "POST",
            f"/upload/storage/v1/b/{BUCKET}/o",
            params={"uploadType": "media", "name": name},
            content=archive,
        )
        return f"gs://{BUCKET}/{name}"

    def set(self, **attributes: str) -> None:
        """Change attributes; underscores in their names stand for hyphens."""
        path = f"{BASE}/{ZONE}/instances/{self.name}"
        metadata = self.call("GET", path)["metadata"]
        present = {item["key"]: item["value"] for item in metadata["items"]}
        present |= {key.replace("_", "-"): value for key, value in attributes.items()}
        body = {"fingerprint": metadata["fingerprint"], "items": _items(present)}
        self.call("POST", f"{path}/setMetadata", json=body)

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        """Open a request of the VM."""
        if self.unreachable and "/computeMetadata/" in request.full_url:
            raise urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))
        return self._opener.open(request, timeout=timeout)

    def boot(self, slurmctld_port: int = 1) -> configurer.Configurer:
        """Start the program, as at a boot of the VM."""
        cloud = guest.Cloud(
            f"{self.server.metadata_url}/computeMetadata/v1/",
            f"{self.server.url}/storage/v1/",
            f"{self.server.url}/secretmanager/v1/",
            self.open,
        )
        reporter = report.Reporter(cloud, self.notice, self.log.append)
        reporter.pause_s = 0.02
        watch = wanted.Watch(cloud, self.log.append)
        program = configurer.Configurer(
            cloud,
            watch=watch,
            reporter=reporter,
            keys=keys.Keys(cloud, "demo-project"),
            playbook=playbook.Playbook(self.folder / "venv", self.folder / "private"),
            name=self.name,
            places=configurer.Places(self.opt, self.folder / "applied.json", self.folder / "ssh"),
            tell=self.broadcasts.append,
        )
        program.pauses_s = (0.05, 0.1)
        program.patience_s = 0.2
        program.first_wait_s = 0.05
        program.slurmctld_port = slurmctld_port
        reporter.start()
        watch.start()
        serve = threading.Thread(
            target=configurer.serve,
            args=(program, watch, reporter, lambda: False, lambda: None),
            daemon=True,
        )
        serve.start()
        return program

    def report(self) -> dict[str, str]:
        """What the VM reports now; empty where it hasn't yet."""
        return json.loads(self.attribute("muster/report") or "{}")

    def attribute(self, path: str) -> str | None:
        answer = self.http.get(
            f"{BASE}/{ZONE}/instances/{self.name}/getGuestAttributes", params={"queryPath": path}
        )
        if answer.status_code != 200:
            return None
        return str(answer.json()["queryValue"]["items"][0]["value"])

    def reports(self, **wanted: str) -> dict[str, str]:
        """Wait until the report has these members, then return it."""
        seen: dict[str, str] = {}

        def so() -> bool:
            seen.clear()
            seen.update(self.report())
            return bool(seen) and all(text in seen[name] for name, text in wanted.items())

        until(so, lambda: f"a report with {wanted}; it is {seen}; log: {self.log}")
        return seen

    def runs(self) -> list[dict[str, Any]]:
        """What ansible-playbook was started with, run by run."""
        if not self.runs_file.exists():
            return []
        return [json.loads(line) for line in self.runs_file.read_text().splitlines()]

    def versions(self, secret: str) -> list[str]:
        """The values of a secret's versions, the newest first."""
        path = f"/secretmanager/v1/projects/demo-project/secrets/slurm10-{secret}/versions"
        versions = self.call("GET", path).get("versions", [])
        return [
            base64.b64decode(
                self.call("GET", f"/secretmanager/v1/{version['name']}:access")["payload"]["data"]
            ).decode()
            for version in versions
        ]

    def add_version(self, secret: str, value: str) -> None:
        path = f"/secretmanager/v1/projects/demo-project/secrets/slurm10-{secret}:addVersion"
        data = base64.b64encode(value.encode()).decode()
        self.call("POST", path, json={"payload": {"data": data}})


def _items(attributes: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in attributes.items()]


def until(state: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if state():
            return
        time.sleep(0.02)
    pytest.fail(f"not within {SECONDS} s: {what if isinstance(what, str) else what()}")
