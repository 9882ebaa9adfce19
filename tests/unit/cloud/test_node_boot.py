"""The boot program of nodes (roles/cloud_node/files), on a machine that is a folder."""

import base64
import getpass
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from node_boot_kit import KEY, PROGRAM, begin
from waiting import until

from muster.fakecloud.errors import ApiError
from muster.fakecloud.server import Server

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

    def __init__(self, server: Server, root: Path, module: ModuleType) -> None:
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
        changed = ATTRIBUTES | {name.replace("_", "-"): each for name, each in attributes.items()}
        items = [{"key": name, "value": each} for name, each in changed.items() if each]
        present = self.http.get(NODE).json()["metadata"]
        body = {"fingerprint": present["fingerprint"], "items": items}
        self.ok(f"{NODE}/setMetadata", body)

    def report(self) -> dict[str, str]:
        """What the guest attribute says."""
        found = self.http.get(f"{NODE}/getGuestAttributes", params={"queryPath": "muster/report"})
        return (
            json.loads(found.json()["queryValue"]["items"][0]["value"])
            if found.status_code == 200
            else {}
        )

    def read(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def machine(cloud: Server, tmp_path: Path, module: ModuleType) -> Iterator[Machine]:
    made = Machine(cloud, tmp_path, module)
    yield made
    made.http.close()


@pytest.fixture
def restarts(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Programs that were run, which are not run."""
    called: list[list[str]] = []
    monkeypatch.setattr(module, "command", lambda words, _: called.append(words))
    return called


def test_a_node_gets_its_key_names_options_and_people(machine: Machine):
    machine.add_key()
    machine.node.key()
    key = machine.root / "etc/munge/munge.key"
    assert key.read_bytes() == KEY
    assert oct(key.stat().st_mode & 0o777) == "0o400"
    assert machine.read("etc/hosts").splitlines() == [
        "127.0.0.1 localhost",
        "# muster: begin",
        "10.0.0.2 lab-controller",
        "127.0.0.1 lab-debug-3",
        "# muster: end",
    ]
    options = "--conf-server lab-controller:6817 -N lab-debug-3"
    assert machine.read("run/muster-node/slurmd") == f'SLURMD_OPTIONS="{options}"\n'
    assert (machine.root / "var/lib/extrausers").readlink() == Path("/apps/.muster/extrausers")
    assert machine.report() == {}


def test_a_second_boot_changes_nothing(machine: Machine, restarts: list[list[str]]):
    machine.add_key()
    machine.node.key()
    hosts = machine.read("etc/hosts")
    before = (machine.root / "etc/munge/munge.key").stat()
    machine.node.key()
    assert machine.read("etc/hosts") == hosts
    assert (machine.root / "etc/munge/munge.key").stat().st_ino == before.st_ino
    assert restarts == []


def test_another_key_and_another_controller_replace_the_old(
    machine: Machine, restarts: list[list[str]]
):
    machine.add_key()
    machine.node.key()
    machine.add_key(KEY[::-1])
    machine.set(muster_hosts='{"lab-controller": "10.0.0.9"}', muster_people="/srv/people")
    machine.node.key()
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY[::-1]
    assert restarts == [["systemctl", "--no-block", "try-restart", "munge.service"]]
    assert "10.0.0.9 lab-controller" in machine.read("etc/hosts")
    assert "10.0.0.2" not in machine.read("etc/hosts")
    assert (machine.root / "var/lib/extrausers").readlink() == Path("/srv/people")


def test_a_secret_without_a_version_is_waited_for(machine: Machine, capfd: pytest.CaptureFixture):
    boot = begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    message = "the secret lab-munge-key has no version yet; the controller's first boot adds it"
    assert machine.report() == {
        "bundle": "",
        "state": "failed",
        "step": "fetch the munge key",
        "message": message,
    }
    assert not (machine.root / "etc/munge/munge.key").exists()
    machine.add_key()
    boot.join(20)
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY
    assert machine.report()["state"] == "done"
    said = capfd.readouterr().out.splitlines()
    assert said == [f"muster: fetch the munge key: {message}", "muster: fetch the munge key: done"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_secret_manager_that_is_down_is_waited_for(machine: Machine, status: int):
    machine.add_key()
    error = ApiError(status, "backendError", "The service is unavailable.")
    machine.server.do(lambda cloud: cloud.faults.add("*.access", times=3, error=error))
    machine.node.key()
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY


def test_rights_that_come_late_are_waited_for(machine: Machine):
    machine.add_key()
    machine.may_read(allowed=False)
    boot = begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    assert "Secret Manager answers 403: Permission 'secretmanager" in machine.report()["message"]
    machine.may_read()
    boot.join(20)
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY


def test_nobody_at_secret_managers_address(machine: Machine):
    machine.node.secrets = "http://127.0.0.1:9/v1/"
    begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    assert "Secret Manager does not answer: [Errno 111]" in machine.report()["message"]


def test_metadata_that_lacks_something_is_said_on_the_console(
    machine: Machine, capfd: pytest.CaptureFixture
):
    machine.set(muster_hosts="", muster_cluster="")
    machine.add_key()
    boot = begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    assert "no muster-cluster and no muster-hosts" in capfd.readouterr().out
    machine.set()
    boot.join(20)
    assert (machine.root / "run/muster-node/slurmd").exists()


MOUNTS = [
    {"source": "lab-controller:/home", "path": "/home", "type": "nfs4", "options": "hard"},
    {"source": "lab-controller:/apps", "path": "/apps", "type": "nfs4", "options": ""},
]


def test_slurmd_is_not_ready_before_all_is_mounted(
    machine: Machine, module: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    machine.add_key()
    machine.set(muster_mounts=json.dumps(MOUNTS))
    machine.node.key()
    ready = machine.root / "run/muster-node/slurmd"
    called: list[list[str]] = []
    state = {"down": True}

    def mount(words: list[str], seconds: float) -> None:
        called.append(words)
        assert not ready.exists()
        if words[-1].endswith("/apps") and state["down"]:
            raise module.TroubleError("mount.nfs4: Connection refused")

    monkeypatch.setattr(module, "command", mount)
    boot = begin(machine.node.mounts)
    until(machine.report, "the node says what it waits for")
    assert machine.report()["step"] == "mount /apps"
    assert machine.report()["message"] == "mount.nfs4: Connection refused"
    assert not ready.exists()
    state["down"] = False
    boot.join(20)
    assert ready.exists()
    home = str(machine.root / "home")
    assert called[0] == ["mount", "-t", "nfs4", "-o", "hard", "lab-controller:/home", home]
    assert called[1][:4] == ["mount", "-t", "nfs4", "lab-controller:/apps"]


def test_a_program_that_fails_or_hangs_is_trouble(module: ModuleType):
    with pytest.raises(module.TroubleError, match="No such file"):
        module.command(["ls", "/nowhere"], 10)
    with pytest.raises(module.TroubleError, match="timed out"):
        module.command(["sleep", "60"], 0.1)
    with pytest.raises(module.TroubleError, match="No such file"):
        module.command(["/nowhere/program"], 10)


def test_it_imports_little(module: ModuleType):
    """Each module is a part of every node's boot; these are what HTTP itself needs."""
    names = "argparse asyncio dataclasses inspect logging pathlib subprocess tempfile"
    script = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "print(sorted(set(sys.argv[2:]) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script, str(PROGRAM), *names.split()],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"
