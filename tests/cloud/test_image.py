"""The image: a VM of fakecloud builds it from only the bundle, then two VMs boot from it."""

import base64
import io
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from waiting import until

from muster.definition import load
from muster.gcp import api, builder_vm, bundle
from muster.gcp.archive import pack
from muster_sandbox.cloud_demo.site import builders
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import podman, ulimits
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.machines import with_machines
from muster_sandbox.fakecloud.server import Server

ROOT = Path(__file__).parents[2]
RELEASE = os.environ.get("RELEASE", "bookworm")
SYSTEM = base_image.RELEASES[RELEASE]
NAME = "muster-cloud-image"
ZONE = "zones/europe-west4-a"
REGION = "regions/europe-west4"
BUCKET = "slurm10-bundles"
PLANTED = "planted-5e1f"
"""Planted in and beside the definition, wherever a name or a secret may be."""
PLANTED_KEY = base64.b64encode(os.urandom(64)).decode()

BUILD_SECONDS = 1200
"""Timeout of a build: two busy cores took ten minutes for it."""

# What the image adds to Debian: each VM runs it, whatever its role.
ENABLED = {
    "chrony.service",
    "logrotate.timer",
    "muster-boot.service",
    "muster-guard-keeper.service",
    "muster-guard.service",
    "muster-host-keys.service",
    "nfs-client.target",
    # systemd's own; Google's images have them enabled already.
    "remote-fs.target",
    "systemd-pstore.service",
}


@dataclass(frozen=True)
class Site:
    """A project with a network, a bucket, and an account that may read the bucket."""

    server: Server
    compute: api.Compute
    account: str

    def do(self, path: str, body: dict | None = None) -> None:
        self.compute.wait(self.compute.post(path, body), 200)

    def upload(self, name: str, content: bytes) -> None:
        answer = httpx.post(
            f"{self.server.url}/upload/storage/v1/b/{BUCKET}/o",
            params={"uploadType": "media", "name": name},
            content=content,
            headers={"Authorization": "Bearer owner"},
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text

    def insert(self, name: str, source: str, **attributes: str) -> None:
        items = [{"key": key.replace("_", "-"), "value": v} for key, v in attributes.items()]
        self.do(
            f"{ZONE}/instances",
            {
                "name": name,
                "machineType": f"{ZONE}/machineTypes/n1-standard-2",
                "disks": [
                    {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": source}}
                ],
                "networkInterfaces": [{"subnetwork": f"{REGION}/subnetworks/lab"}],
                "metadata": {"items": items},
                "serviceAccounts": [{"email": self.account, "scopes": [api.SCOPE]}],
            },
        )

    def build(self, name: str, archive: bytes, digest: str = "") -> dict:
        """Run a builder to its end, and return its report."""
        digest = digest or bundle.digest(archive)
        self.upload(f"image-{digest}.tar.gz", archive)
        self.insert(
            name,
            f"projects/debian-cloud/global/images/family/{SYSTEM}",
            startup_script=builder_vm.startup_script(),
            enable_guest_attributes="TRUE",
            muster_role="builder",
            muster_bundle=f"gs://{BUCKET}/image-{digest}.tar.gz",
        )
        path = f"{ZONE}/instances/{name}"
        try:
            until(
                lambda: self.compute.get(path)["status"] == "TERMINATED",
                f"{name} is off",
                BUILD_SECONDS,
            )
        finally:
            sys.stdout.write(self.compute.get(f"{path}/serialPort")["contents"])
        answer = self.compute.get(f"{path}/getGuestAttributes", queryPath="muster/report")
        return json.loads(answer["queryValue"]["items"][0]["value"])

    def container(self, name: str) -> str:
        return f"{NAME}-{self.compute.get(f'{ZONE}/instances/{name}')['id']}"

    def run(self, name: str, *command: str) -> str:
        return podman("exec", self.container(name), *command, timeout=120)

    def state(self, name: str, *command: str) -> str:
        """The output of a command, whatever its exit status."""
        return self.run(name, "sh", "-c", f"{' '.join(command)} || true")


def account(url: str, project: str, role: str) -> str:
    """A service account with a role in the project."""
    with httpx.Client(
        base_url=url, headers={"Authorization": "Bearer owner"}, trust_env=False
    ) as http:

        def post(path: str, body: dict) -> dict:
            answer = http.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        post(f"/storage/v1/b?project={project}", {"name": BUCKET, "location": "EUROPE-WEST4"})
        email = post(f"/iam/v1/projects/{project}/serviceAccounts", {"accountId": "builder"})[
            "email"
        ]
        path = f"/cloudresourcemanager/v1/projects/{project}"
        policy = post(f"{path}:getIamPolicy", {})
        policy["bindings"].append({"role": role, "members": [f"serviceAccount:{email}"]})
        post(f"{path}:setIamPolicy", {"policy": policy})
    return str(email)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("cloud")
    with (
        with_machines(NAME, folder, kept=builders()) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        server.start()
        project = server.cloud.settings.project
        for name, value in environment(server.url, project).items():
            patch.setenv(name, value)
        try:
            empty_project = Site(
                server,
                api.Compute(project),
                account(server.url, project, "roles/storage.objectViewer"),
            )
            empty_project.do("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
            subnet = {"network": "global/networks/lab", "ipCidrRange": "10.214.52.0/24"}
            empty_project.do(f"{REGION}/subnetworks", {"name": "lab", **subnet})
            yield empty_project
        finally:
            server.stop()
    assert server.cloud.failures == []


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A definition, and secrets beside it: none of them may get into the image."""
    folder = tmp_path_factory.mktemp("definition") / "cloud"
    shutil.copytree(ROOT / "inventories/cloud", folder)
    file = folder / "group_vars/all/cluster.yml"
    text = file.read_text(encoding="utf-8").replace("slurm10", "planted")
    text = text.replace("os: debian-12", f"os: {SYSTEM}").replace("ada", PLANTED)
    file.write_text(text, encoding="utf-8")
    secrets = folder / "group_vars/all/secrets.yml"
    secrets.write_text(
        f"secrets: {{munge_key: {PLANTED_KEY}, slurmdbd_password: {os.urandom(16).hex()}}}\n",
        encoding="utf-8",
    )
    secrets.chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def archive(inventory: Path) -> bytes:
    return bundle.image_bundle(ROOT, load(inventory))


@pytest.fixture(scope="module")
def machines(site: Site, archive: bytes) -> tuple[str, str]:
    """Two machines that booted from the image."""
    report = site.build("maker", archive)
    assert report["state"] == "done", report
    assert report["bundle"] == bundle.digest(archive)
    site.do("global/images", {"name": "baked", "sourceDisk": f"{ZONE}/disks/maker"})
    for name in ("one", "two"):
        site.insert(name, "global/images/baked")
        until(
            lambda n=name: site.state(n, "systemctl is-system-running") in {"running", "degraded"},
            f"{name} has booted",
            60,
        )
        assert site.state(name, "systemctl --failed --no-legend") == ""
    return "one", "two"


def test_two_machines_have_identities_of_their_own(site: Site, machines: tuple[str, str]) -> None:
    for path in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"):
        one, two = (site.run(name, "cat", path) for name in machines)
        assert one != two, path
    assert re.fullmatch(r"[0-9a-f]{32}", site.run("one", "cat", "/etc/machine-id"))
    assert site.state("one", "ls /etc/munge/munge.key 2>/dev/null") == ""


def test_nothing_of_the_definition_is_in_the_image(site: Site, machines: tuple[str, str]) -> None:
    words = f"-e {PLANTED} -e {PLANTED_KEY}"
    search = f"grep -rlaF {words} / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev"
    assert site.state(machines[0], search) == ""
    # The search itself works:
    site.run(machines[0], "sh", "-c", f"echo {PLANTED} >/var/lib/seen")
    assert site.state(machines[0], search) == "/var/lib/seen"


def test_nothing_of_the_build_is_left(site: Site, machines: tuple[str, str]) -> None:
    left = "find /var/lib/apt/lists /var/cache/apt/archives /root -type f -size +0"
    paths = site.state(machines[0], left).split()
    assert [path for path in paths if path.split("/")[-1] not in {".bashrc", ".profile"}] == []
    assert site.state(machines[0], "grep -rlE 'Setting up|muster-build' /var/log /tmp") == ""


def test_no_daemon_runs_that_nobody_asked_for(site: Site, machines: tuple[str, str]) -> None:
    listing = ["systemctl", "--root=/", "list-unit-files", "--state=enabled", "--no-legend"]
    # Units that are enabled on all machines of a release.
    base = podman("run", "--rm", *ulimits(), base_image.ensure(RELEASE), *listing)
    plain, after = (
        {line.split()[0] for line in text.splitlines()}
        for text in (base, site.run(machines[0], *listing))
    )
    assert after - plain == ENABLED | {
        "google-startup-scripts.service",
        "fakecloud-disks.service",
    }
    processes = site.run(machines[0], "ps", "-eo", "comm=").split()
    assert {"munged", "mariadbd", "slurmctld", "slurmd", "slurmdbd", "sackd"} & {
        *processes
    } == set()


def test_nobody_but_root_logs_in_by_ssh_unless_a_play_says_otherwise(
    site: Site, machines: tuple[str, str]
) -> None:
    # A person with all that a login takes: an account that PAM accepts, and a key in the home.
    name = machines[1]
    site.run(name, "useradd", "--create-home", "eve")
    site.run(name, "usermod", "--password", "*", "eve")
    keys = "ssh-keygen -q -t ed25519 -N '' -f /root/eve; mkdir -m 700 ~eve/.ssh"
    site.run(name, "sh", "-c", f"{keys}; cp /root/eve.pub ~eve/.ssh/authorized_keys")
    site.run(name, "chown", "-R", "eve:", "/home/eve/.ssh")
    ssh = "ssh -i /root/eve -o BatchMode=yes -o StrictHostKeyChecking=no eve@127.0.0.1 echo in 2>&1"
    assert "eve@127.0.0.1: Permission denied" in site.state(name, ssh)
    # Not by unit: the journal may not know any more whose process that has ended this was.
    log = ("journalctl", "-t", "sshd", "-t", "sshd-session", "-o", "cat")
    refused = "User eve from 127.0.0.1 not allowed because not listed in AllowUsers"
    until(lambda: refused in site.run(name, *log), refused, 10, lambda: site.run(name, *log))
    # All else is in order: it is this file that keeps her out.
    site.run(name, "rm", "/etc/ssh/sshd_config.d/50-muster.conf")
    site.run(name, "systemctl", "restart", "ssh")
    assert site.state(name, ssh).splitlines()[-1] == "in"


def test_the_virtual_environment_is_all_that_muster_needs(
    site: Site, machines: tuple[str, str], inventory: Path, tmp_path: Path
) -> None:
    name = machines[1]
    with tarfile.open(fileobj=io.BytesIO(bundle.machine_bundle(ROOT, inventory))) as unpacked:
        unpacked.extractall(tmp_path / "bundle", filter="data")
    podman("cp", str(tmp_path / "bundle"), f"{site.container(name)}:/root/bundle")
    python = "cd /root/bundle && PYTHONPATH=. LC_ALL=C.UTF-8 /opt/muster/venv/bin/"
    site.run(name, "sh", "-c", f"{python}python -m muster check inventory")
    site.run(name, "sh", "-c", f"{python}python -c 'import ansible, pydantic, muster.gcp.api'")
    hosts = "-i planted-controller, --syntax-check"
    site.run(name, "sh", "-c", f"{python}ansible-playbook {hosts} ansible/site.yml")


def test_bundle_that_was_changed_is_not_run(site: Site) -> None:
    report = site.build("deceived", pack({"other": b"content"}), digest="0" * 64)
    assert report["state"] == "failed"
    assert "it was changed" in report["message"]


@pytest.mark.proof("a builder of its own, which installs Ansible once more")
def test_failed_task_is_told(site: Site, archive: bytes) -> None:
    """The definition names another system than the VM's."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as unpacked:
        files = {name: unpacked.extractfile(name).read() for name in unpacked.getnames()}
    files["image.json"] = b'{"os": "debian-11", "slurm_version": "20.11"}'
    report = site.build("stranger", pack(files))
    assert report["state"] == "failed"
    assert f"runs {SYSTEM}, the definition says debian-11" in report["message"]
