"""`muster ssh-config`: what people need to reach a login node."""

import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from accesskit import NO_STACK, UP, Pulumi

from muster_sandbox.fakecloud import Settings
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.server import Server
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES

ROOT = Path(__file__).resolve().parents[3]
STACK = {**UP, "project": "demo-project"}


def muster(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster", "ssh-config", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def as_ssh_reads_it(file: Path, host: str) -> dict[str, str]:
    """What ssh makes of the configuration: its own answer."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(file), host], capture_output=True, text=True, timeout=10, check=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("name", ["slurm10", "slurm10-login-0"])
def test_ssh_takes_the_way_through_iap(pulumi: Pulumi, tmp_path: Path, name: str) -> None:
    done = muster(pulumi(UP), "cloud", "--user", "ada")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "config"
    file.write_text(done.stdout)
    read = as_ssh_reads_it(file, name)
    assert read["user"] == "ada"
    assert read["proxycommand"] == (
        "gcloud compute start-iap-tunnel slurm10-login-0 22 --listen-on-stdin "
        "--project=my-project --zone=europe-west4-a --verbosity=warning"
    )
    assert read["stricthostkeychecking"] == "accept-new"
    assert read["hostkeyalias"] == "slurm10-login-0.europe-west4-a.my-project"
    assert read["userknownhostsfile"].endswith("/.ssh/known_hosts.muster-slurm10")


def test_the_agent_is_forwarded_to_the_controller_alone(pulumi: Pulumi, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(muster(pulumi(UP), "cloud").stdout)
    assert as_ssh_reads_it(file, "slurm10-controller")["forwardagent"] == "yes"
    assert as_ssh_reads_it(file, "slurm10")["forwardagent"] == "no"


def test_each_login_node_has_its_name_and_the_first_the_cluster_s(pulumi: Pulumi) -> None:
    done = muster(pulumi({**UP, "logins": ["slurm10-login-0", "slurm10-login-1"]}), "cloud")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("Host ")] == [
        "Host slurm10 slurm10-login-0",
        "Host slurm10-login-1",
        "Host slurm10-controller",
    ]
    assert "    User " not in done.stdout


def test_write_puts_it_where_ssh_reads_it_and_says_what_is_missing(
    pulumi: Pulumi, tmp_path: Path
) -> None:
    env = pulumi(UP)
    done = muster(env, "cloud", "--user", "ada", "--write")
    assert "Include config.d/*" in done.stdout
    file = tmp_path / ".ssh/config.d/muster-slurm10"
    assert file.read_text() == muster(env, "cloud", "--user", "ada").stdout
    (tmp_path / ".ssh/config").write_text("Include config.d/*\n")
    assert "Include" not in muster(env, "cloud", "--user", "ada", "--write").stdout


@pytest.fixture
def cloud() -> Iterator[Server]:
    """A cloud with the VMs of the stack, which have said their host keys."""
    server = Server(Settings()).start()
    headers = {"Authorization": "Bearer owner"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False) as client:

        def post(path: str, body: dict) -> None:
            answer = client.post(f"/compute/v1/projects/demo-project/{path}", json=body)
            assert answer.is_success, answer.text

        post("global/networks", {"name": "n", "autoCreateSubnetworks": False})
        subnet = {"name": "n", "network": "global/networks/n", "ipCidrRange": "10.0.0.0/20"}
        post("regions/europe-west4/subnetworks", subnet)
        source = "projects/debian-cloud/global/images/family/debian-12"
        disk = {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": source}}
        metadata = {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]}
        for name in (STACK["controller"], *STACK["logins"]):
            body = {
                "name": name,
                "machineType": "zones/europe-west4-a/machineTypes/n1-standard-2",
                "disks": [disk],
                "networkInterfaces": [{"subnetwork": "regions/europe-west4/subnetworks/n"}],
                "metadata": metadata,
            }
            post("zones/europe-west4-a/instances", body)
    yield server
    server.stop()
    assert server.cloud.failures == []


def key(number: int) -> str:
    """A public key as ssh writes it: RFC 8709, section 4."""
    return b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes([number]) * 32).decode()


def say_key(cloud: Server, host: str, key: str) -> None:
    """As the VM's muster-configure does."""
    scope = f"demo-project/zones/europe-west4-a/{host}"
    cloud.do(lambda c: c.store.put(GUEST_ATTRIBUTES, scope, "hostkeys/ssh-ed25519", {"value": key}))


def known(home: Path, host: str) -> list[str]:
    """The keys that ssh finds for a host, as it reads the file itself."""
    done = subprocess.run(
        [
            *("ssh-keygen", "-F", f"{host}.europe-west4-a.demo-project"),
            *("-f", str(home / ".ssh/known_hosts.muster-slurm10")),
        ],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return [line.split(" ")[2] for line in done.stdout.splitlines() if not line.startswith("#")]


def test_write_asks_google_for_the_vms_host_keys(
    pulumi: Pulumi, tmp_path: Path, cloud: Server
) -> None:
    env = pulumi(STACK) | environment(cloud.url, "demo-project")
    # New keys, and those of a recreated VM.
    for controller, login in ((1, 2), (1, 3)):
        say_key(cloud, "slurm10-controller", key(controller))
        say_key(cloud, "slurm10-login-0", key(login))
        done = muster(env, "cloud", "--write")
        assert done.returncode == 0, done.stderr
        assert "learns its host key" not in done.stdout
        assert known(tmp_path, "slurm10-login-0") == [key(login)]
        assert known(tmp_path, "slurm10-controller") == [key(controller)]


def test_a_vm_whose_keys_are_not_to_be_had_is_named_and_what_is_known_stays(
    pulumi: Pulumi, tmp_path: Path, cloud: Server
) -> None:
    env = pulumi(STACK) | environment(cloud.url, "demo-project")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts.muster-slurm10").write_text(
        f"slurm10-controller.europe-west4-a.demo-project ssh-ed25519 {key(1)}\n"
    )
    say_key(cloud, "slurm10-login-0", key(2))
    done = muster(env, "cloud", "--write")
    assert done.returncode == 0, done.stderr
    assert "slurm10-controller: the first connection learns its host key" in done.stdout
    assert known(tmp_path, "slurm10-controller") == [key(1)]
    assert known(tmp_path, "slurm10-login-0") == [key(2)]


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (["cloud"], NO_STACK, "there is no stack slurm10 here"),
        (["cloud", "--user", "nobody2"], "", "nobody in inventories/cloud has the login nobody2"),
        (["lab"], "", "inventories/lab is not in the cloud"),
    ],
)
def test_what_can_not_be_is_one_sentence(
    pulumi: Pulumi, words: list[str], error: str, says: str
) -> None:
    done = muster(pulumi(None if error else UP, error), *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
