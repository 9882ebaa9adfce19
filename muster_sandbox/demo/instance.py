"""A cluster of containers: a copy of an inventory, adapted to this machine, and its hosts."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from muster import secrets
from muster.definition import load
from muster_sandbox.containers import base_image, machines
from muster_sandbox.containers.machines import Fleet, Machine
from muster_sandbox.containers.podman import MachineError

PYTHON = {"bookworm": "3.11", "trixie": "3.13"}
"""Each release has this Python version as a package; the demo's module tree can contain it."""
_OF_BOOKWORM = re.compile(rf"(?<![\d.]){re.escape(PYTHON['bookworm'])}(?![\d.])")


def _program(name: str) -> str:
    """Return the path of a program of this virtual environment."""
    return str(Path(sys.executable).with_name(name))


@dataclass(frozen=True)
class Instance:
    """One cluster of containers; all its files are in its folder."""

    folder: Path
    """The copy of the inventory; use it as usual: `ansible-playbook -i FOLDER ansible/site.yml`."""

    @property
    def state(self) -> Path:
        """The folder of ssh keys, host keys and shared folders."""
        return self.folder / ".machines"

    @property
    def exists(self) -> bool:
        """Whether the copy is complete: it is incomplete if the run was killed."""
        return secrets.path_of(self.folder).exists()

    def create(self, template: Path, release: str, subnet: str | None = None) -> None:
        """Copy `template` and adapt it to this machine; keep an existing copy.

        With `subnet` the copy gets another network than the template: then both can run.

        Raises:
            MachineError: the existing copy has another release.

        """
        if self.exists:
            self._check_release(release)
            return
        machines.remove_folder(self.folder)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(
            template, self.folder, ignore=shutil.ignore_patterns(".machines", "secrets.yml")
        )
        self.state.mkdir()
        machines.make_key(self.state / "ssh_key")
        self._edit_definition(release)
        if subnet is not None:
            self._move_to(subnet)
        secrets.make(self.folder)

    def fleet(self) -> Fleet:
        """Return the containers of this cluster.

        Raises:
            muster.definition.DefinitionError: the definition is wrong.
            MachineError: Ansible can't read the inventory.

        """
        definition = load(self.folder)
        variables = self._variables()
        release = next(
            name for name, system in base_image.RELEASES.items() if system == definition.cluster.os
        )
        common = next(iter(variables.values()))
        return Fleet(
            network=common["container_network"],
            subnet=common["container_subnet"],
            internet=common.get("container_internet", True),
            folder=self.state,
            machines=tuple(
                Machine(
                    name=host,
                    address=of_host["ansible_host"],
                    release=release,
                    gpus=of_host.get("container_gpus", 0),
                    cores=of_host.get("container_cores", 2),
                )
                for host, of_host in variables.items()
            ),
            # Muster's roles mount all other folders.
            shares={
                key: folder.path
                for key, folder in definition.cluster.storage.folders()
                if folder.kind == "existing"
            },
        )

    def _variables(self) -> dict[str, dict[str, Any]]:
        """Return each host's variables and those of its groups, as Ansible merges them."""
        done = subprocess.run(
            [_program("ansible-inventory"), "--inventory", str(self.folder), "--list"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise MachineError(f"{self.folder}: {' '.join(done.stderr.split())}")
        merged: dict[str, dict[str, Any]] = json.loads(done.stdout)["_meta"]["hostvars"]
        return merged

    @property
    def log(self) -> Path:
        """Ansible's log, beside the folder: Ansible reads each file in there as an inventory."""
        return self.folder.with_suffix(".log")

    def configure(self) -> int:
        """Run site.yml on this cluster and return ansible-playbook's exit code.

        It prints a line for each role; the complete output of Ansible is in `log`.
        """
        command = [
            _program("ansible-playbook"),
            *("--inventory", str(self.folder), "ansible/site.yml"),
        ]
        shown = {
            "ANSIBLE_STDOUT_CALLBACK": "muster.slurm.muster_roles",
            "ANSIBLE_LOG_PATH": str(self.log),
        }
        return subprocess.run(command, check=False, env=os.environ | shown).returncode

    def remove(self, network: str) -> list[str]:
        """Remove the containers on `network`, the network and the folder; return their names.

        This finds the containers without the folder: somebody may have deleted the folder before.
        """
        removed = machines.down(network)
        machines.remove_folder(self.folder)
        self.log.unlink(missing_ok=True)
        return removed

    def _edit_definition(self, release: str) -> None:
        yaml = YAML()
        yaml.width = 4096
        yaml.preserve_quotes = True
        path = self.folder / "group_vars" / "all" / "cluster.yml"
        text = path.read_text(encoding="utf-8")
        document = yaml.load(_OF_BOOKWORM.sub(PYTHON[release], text))
        definition = document["cluster"]
        definition["os"] = base_image.RELEASES[release]
        key = (self.state / "ssh_key.pub").read_text(encoding="utf-8").strip()
        for person in definition.get("users", {}).get("people", {}).values():
            person["ssh_keys"] = [key]
        yaml.dump(document, path)

    def _move_to(self, subnet: str) -> None:
        """Give the copy another network; the last number of each host's address stays."""
        path = self.folder / "hosts.yml"
        text = path.read_text(encoding="utf-8")
        old = next(
            line.split(":")[1].strip().rsplit(".", 1)[0]
            for line in text.splitlines()
            if "container_subnet:" in line
        )
        network = next(
            line.split(":")[1].strip() for line in text.splitlines() if "container_network:" in line
        )
        new = subnet.rsplit(".", 1)[0]
        text = text.replace(f"{old}.", f"{new}.").replace(network, self.folder.name)
        path.write_text(text, encoding="utf-8")

    def _check_release(self, release: str) -> None:
        system = load(self.folder).cluster.os
        if system != base_image.RELEASES[release]:
            raise MachineError(
                f"{self.folder} is a cluster of {system}; run `make demo-down` first, "
                f"or give its release"
            )
