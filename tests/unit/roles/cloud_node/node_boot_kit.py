"""The programs of nodes, as modules, and a machine that is a folder."""

import base64
import getpass
import importlib.util
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx

from muster_sandbox.fakecloud.server import Server

FOLDER = Path(__file__).parents[4] / "roles/cloud_node/files/usr/local/lib/muster"
PROGRAM = FOLDER / "node.py"
KEY = b"a key of the trial, thirty-two bytes and more"

PROJECT = "projects/demo-project"
REGION, ZONE = "regions/europe-west4", "europe-west4-a"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
COMPUTE = f"/compute/v1/{PROJECT}"
SECRETS = f"/secretmanager/v1/{PROJECT}/secrets"
NODE = f"{COMPUTE}/zones/{ZONE}/instances/lab-debug-3"
ATTRIBUTES = {
    "muster-cluster": "lab",
    "muster-hosts": '{"lab-controller": "10.0.0.2"}',
    "enable-guest-attributes": "TRUE",
}


class Machine:
    """A node at 127.0.0.1, its files in a folder, and the project around it."""

    def __init__(
        self, server: Server, root: Path, module: ModuleType, *, spot: bool = False
    ) -> None:
        self.server = server
        self.root = root
        self.http = httpx.Client(
            base_url=server.url, headers={"Authorization": "Bearer owner"}, trust_env=False
        )
        for folder in ("etc/munge", "run", "var/lib/extrausers"):
            (root / folder).mkdir(parents=True)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        self.node = module.Node(
            str(root),
            f"{server.metadata_url}/computeMetadata/v1/",
            f"{server.url}/secretmanager/v1/",
            getpass.getuser(),
        )
        self.ok(f"{COMPUTE}/global/networks", {"name": "lab", "autoCreateSubnetworks": False})
        subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "126.0.0.0/7"}
        self.ok(f"{COMPUTE}/{REGION}/subnetworks", subnet)
        account = {"accountId": "lab-compute", "serviceAccount": {"displayName": "nodes"}}
        self.email = self.ok(f"/iam/v1/{PROJECT}/serviceAccounts", account)["email"]
        image = "projects/debian-cloud/global/images/family/debian-12"
        nic = {"subnetwork": f"{REGION}/subnetworks/lab", "networkIP": "127.0.0.1"}
        body = {
            "name": "lab-debug-3",
            "machineType": f"zones/{ZONE}/machineTypes/n1-standard-2",
            "disks": [{"boot": True, "initializeParams": {"sourceImage": image}}],
            "networkInterfaces": [nic],
            "serviceAccounts": [{"email": self.email, "scopes": [SCOPE]}],
            "metadata": {"items": [{"key": k, "value": v} for k, v in ATTRIBUTES.items()]},
            "scheduling": {"provisioningModel": "SPOT" if spot else "STANDARD"},
        }
        self.ok(f"{COMPUTE}/zones/{ZONE}/instances", body)
        self.ok(f"{SECRETS}?secretId=lab-munge-key", {"replication": {"automatic": {}}})
        self.may_read()

    def ok(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def may_read(self, *, allowed: bool = True) -> None:
        """Let the node's account read the secret, or not."""
        members = [f"serviceAccount:{self.email}"] if allowed else ["user:ada@example.org"]
        bindings = [{"role": "roles/secretmanager.secretAccessor", "members": members}]
        self.ok(f"{SECRETS}/lab-munge-key:setIamPolicy", {"policy": {"bindings": bindings}})

    def add_key(self, key: bytes = KEY) -> None:
        """Add a version as the controller does: base64 is what is in it."""
        data = base64.b64encode(base64.b64encode(key)).decode()
        self.ok(f"{SECRETS}/lab-munge-key:addVersion", {"payload": {"data": data}})

    def set(self, **attributes: str) -> None:
        """Set attributes; _ stands for -."""
        changed = ATTRIBUTES | {name.replace("_", "-"): value for name, value in attributes.items()}
        items = [{"key": name, "value": value} for name, value in changed.items() if value]
        present = self.http.get(NODE).json()["metadata"]
        body = {"fingerprint": present["fingerprint"], "items": items}
        self.ok(f"{NODE}/setMetadata", body)

    def report(self) -> dict[str, str]:
        """What the guest attribute says."""
        answer = self.http.get(f"{NODE}/getGuestAttributes", params={"queryPath": "muster/report"})
        return (
            json.loads(answer.json()["queryValue"]["items"][0]["value"])
            if answer.status_code == 200
            else {}
        )

    def read(self, path: str) -> str:
        return (self.root / path).read_text()


def load(path: Path = PROGRAM) -> ModuleType:
    """A program as a module."""
    spec = importlib.util.spec_from_file_location(f"muster_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_impatient() -> ModuleType:
    """The boot program, less patient."""
    module = load()
    # So long a test waits for what a node waits a minute for.
    module.PATIENCE_S, module.LONGEST_WAIT_S = 0.5, 0.2
    return module


class StoppedError(Exception):
    """The test is over."""


class Threads:
    """Threads that end with their test: a program that sleeps in one of them is stopped there."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun: list[threading.Thread] = []

    def begin(self, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            with suppress(StoppedError):
                work()

        thread = threading.Thread(target=run, daemon=True)
        self.begun.append(thread)
        thread.start()
        return thread

    def stop_in(self, module: ModuleType) -> ModuleType:
        """Let a program sleep as long as the test lasts, and no longer."""
        module.time = SimpleNamespace(monotonic=time.monotonic, sleep=self.sleep)
        return module

    def sleep(self, seconds: float) -> None:
        if self.over.wait(seconds):
            raise StoppedError

    def end(self) -> None:
        self.over.set()
        for thread in self.begun:
            thread.join(20)
        assert not [thread for thread in self.begun if thread.is_alive()]
