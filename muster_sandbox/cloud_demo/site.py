"""One cloud cluster on this machine: its definition, the cloud it is in, and Pulumi's stack of it.

The program (pulumi/) and the definition (inventories/cloud) are the checkout's. `edited` changes
in the definition what doesn't work on a machine without kernel NFS and without Google's IAP.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from muster_sandbox.containers import base_image, machines
from muster_sandbox.fakecloud.backends.kept import Kept
from muster_sandbox.fakecloud.cloud import Settings
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.machines import with_machines
from muster_sandbox.fakecloud.server import Server

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "inventories/cloud"
IDLE_SECONDS = 60
"""The shortest that the definition allows: somebody is watching."""

GRANT_SECONDS = 2
"""How late a grant is in force. VMs and programs wait for it as they do at Google, where it is some
two minutes."""

FOLDERS = ("home", "apps", "data")


def builders() -> Kept:
    """Return what builders of the cluster's image left on this machine."""
    # The digest changes with the code that makes the builder and with the builder's permissions.
    return Kept(base_image.CACHE / "builders", [ROOT / "pulumi", ROOT / "muster/gcp"])


@dataclass(frozen=True)
class Engine:
    """A Pulumi that can be run: its CLI, and the variables that it needs (PULUMI_HOME...)."""

    pulumi: Path
    environment: Mapping[str, str]


class PulumiError(Exception):
    """A command of Pulumi failed; its output says why."""


@dataclass(frozen=True)
class Site:
    """All its files are below `folder`."""

    folder: Path
    release: str
    """Debian's: bookworm or trixie."""
    subnet: str = "10.214.64.0/20"
    """The cluster's subnet; it must not overlap with this machine's networks."""

    @property
    def name(self) -> str:
        """Prefix of containers, networks and images; different for each site."""
        return self.folder.name

    @property
    def inventory(self) -> Path:
        """The definition's folder."""
        return self.folder / "inventory"

    @property
    def program(self) -> Path:
        """The folder of Pulumi.yaml and of the stack's settings."""
        return self.folder / "program"

    @property
    def cluster_file(self) -> Path:
        """The definition."""
        return self.inventory / "group_vars/all/cluster.yml"

    def key(self, person: str) -> Path:
        """A person's ssh key, created at first use."""
        private_key = self.folder / f"key-of-{person}"
        machines.make_key(private_key)
        return private_key

    def public_key(self, person: str) -> str:
        """The public key, as the definition has it."""
        return self.key(person).with_suffix(".pub").read_text(encoding="utf-8").strip()

    def create(self) -> None:
        """Recreate the folder: definition, keys, shared folders, Pulumi.yaml."""
        machines.remove_folder(self.folder)
        shutil.copytree(TEMPLATE, self.inventory)
        for name in FOLDERS:
            (self.folder / "shared" / name).mkdir(parents=True)
        self.change(self._fit)
        self.program.mkdir()
        main = os.path.relpath(ROOT / "pulumi", self.program)
        text = (ROOT / "pulumi/Pulumi.yaml").read_text(encoding="utf-8")
        # The path in Pulumi.yaml is relative to the checkout's pulumi/.
        text = text.replace("../.venv", sys.prefix)
        (self.program / "Pulumi.yaml").write_text(f"{text}main: {main}\n", encoding="utf-8")

    def change(self, edit: Any) -> None:
        """Let `edit` change the definition, a mapping, in place."""
        yaml = YAML()
        yaml.width = 4096
        yaml.preserve_quotes = True
        document = yaml.load(self.cluster_file.read_text(encoding="utf-8"))
        edit(document["cluster"])
        yaml.dump(document, self.cluster_file)

    def _fit(self, cluster: Any) -> None:
        cluster["os"] = base_image.RELEASES[self.release]
        for name, person in cluster["users"]["people"].items():
            person["ssh_keys"] = [self.public_key(name)]
        # Containers have no kernel NFS: each VM gets the same three folders of this machine.
        cluster["storage"] = {name: {"kind": "existing", "path": f"/{name}"} for name in FOLDERS}
        for nodes in cluster["nodes"].values():
            nodes["idle_seconds"] = IDLE_SECONDS
        cluster["cloud"]["subnet"] = self.subnet

    @contextmanager
    def cloud(self) -> Iterator[Server]:
        """Start a fakecloud for this cluster's project, with machines that boot."""
        shares = {self.folder / "shared" / name: f"/{name}" for name in FOLDERS}
        files = self.folder / "machines"
        settings = Settings(grant_seconds=GRANT_SECONDS)
        with with_machines(self.name, files, settings, shares=shares, kept=builders()) as server:
            server.start()
            try:
                yield server
            finally:
                server.stop()

    def stack(self, engine: Engine, server: Server) -> "Stack":
        """Return Pulumi's stack of this cluster; create it if it doesn't exist."""
        stack = Stack(self, engine, server)
        stack.create()
        return stack


@dataclass(frozen=True)
class Stack:
    """One cluster: its Pulumi stack, and its resources as the cloud's API shows them."""

    site: Site
    engine: Engine
    server: Server

    @property
    def project(self) -> str:
        """The project's id."""
        return self.server.cloud.settings.project

    @cached_property
    def name(self) -> str:
        """The stack's name: the cluster's."""
        document = YAML(typ="safe").load(self.site.cluster_file.read_text(encoding="utf-8"))
        return str(document["cluster"]["name"])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a Pulumi command."""
        return {**self.engine.environment, **environment(self.server.url, self.project)}

    def create(self) -> None:
        """`pulumi stack init` and the settings that a user would make."""
        self.read("stack", "init", self.name)
        for key, value in {
            "gcp:project": self.project,
            "muster:inventory": str(self.site.inventory.resolve()),
            # How often the provider polls an operation; its default of 10 s only makes this slow.
            "gcp:pollInterval": "1s",
            "gcp:batching": '{"sendAfter":"0.1s"}',
        }.items():
            self.set(key, value)

    def set(self, key: str, value: str) -> None:
        """`pulumi config set`."""
        self.read("config", "set", "--stack", self.name, key, "--", value)

    def release_state(self) -> None:
        """Unprotect the disks: a cluster can't be destroyed before."""
        self.read("state", "unprotect", "--all", "--yes", "--stack", self.name)

    def command(self, *words: str) -> list[str]:
        """Return a command of Pulumi in this program's folder."""
        return [str(self.engine.pulumi), "-C", str(self.site.program), *words]

    def read(self, *words: str) -> str:
        """Run a quick command and return what it printed.

        Raises:
            PulumiError: it failed.

        """
        done = subprocess.run(
            self.command("--non-interactive", *words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise PulumiError(f"pulumi {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def show(self, *words: str) -> None:
        """Run a command that a person watches, such as `up`, with its preview.

        Only the preview of `destroy` sees what is protected before anything is deleted.

        Raises:
            PulumiError: it failed.

        """
        command = self.command(*words, "--stack", self.name, "--yes")
        sys.stdout.flush()
        if subprocess.run(command, env=self.environment, check=False).returncode != 0:
            raise PulumiError(f"`pulumi {' '.join(words)}` failed; its last lines say why")

    def instances(self) -> dict[str, dict[str, Any]]:
        """Return the cloud's instances by name."""
        url = f"{self.server.url}/compute/v1/projects/{self.project}/aggregated/instances"
        answer = httpx.get(url, headers={"Authorization": "Bearer owner"}, trust_env=False)
        answer.raise_for_status()
        return {
            item["name"]: item
            for place in answer.json().get("items", {}).values()
            for item in place.get("instances", [])
        }

    def address(self, instance: str) -> str:
        """Return an instance's address in the cluster's network."""
        return str(self.instances()[instance]["networkInterfaces"][0]["networkIP"])

    def container(self, instance: str) -> str:
        """Return podman's name of an instance."""
        return f"{self.site.name}-{self.instances()[instance]['id']}"

    def ssh(self, person: str, instance: str) -> list[str]:
        """Return the ssh command of a person to an instance.

        It connects to the address directly: this machine has no IAP.
        """
        return [
            *("ssh", "-F", "none", "-i", str(self.site.key(person)), "-o", "BatchMode=yes"),
            *("-o", "LogLevel=ERROR"),
            *("-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=20"),
            *("-o", f"UserKnownHostsFile={self.site.folder / 'known_hosts'}"),
            f"{person}@{self.address(instance)}",
        ]
