# SPDX-License-Identifier: Apache-2.0
"""What the roles of a host install, read from their tasks, without asking the host."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible.template import trust_as_template
from ansible_collections.muster.slurm.plugins.plugin_utils.role_arguments import role_folder

DOCUMENTATION = r"""
name: role_packages
short_description: What the roles of a host install
description:
  - Gives one dictionary for the host that a task runs on, by what site.yml's roles say in their tasks.
    C(packages) are names for apt; C(repositories) those of others than the distribution; C(images) those that cephadm runs;
    C(builds) the commands of modules that the controller builds, and those of roles that make a folder once.
  - The host is not asked. What depends on its devices, such as a fabric manager, is in the list.
  - Needs the variables and groups that definition.yml makes.
options: {}
"""

RELEASES = {
    "debian-12": ("Debian", "12", "bookworm"),
    "debian-13": ("Debian", "13", "trixie"),
    "ubuntu-22.04": ("Ubuntu", "22.04", "jammy"),
    "ubuntu-24.04": ("Ubuntu", "24.04", "noble"),
}
HARDWARE = {"nvswitches": 1, "kernel": "$(uname -r)", "flavour": "amd64", "users": []}
"""Of no host in particular: the shell that the names are given to knows its kernel."""

PLAY_HOSTS = re.compile(r"\{\{ groups\.(role_\w+) \| default\('!all'\) \}\}")
PACKAGES = "muster.slurm.managed_packages"
COMMAND = "ansible.builtin.command"
INSTALLS = "/usr/local/lib/muster/install-locked"
"""What roles install from a package index, each into a folder that its task makes once."""
ROLE = ("ansible.builtin.import_role", "ansible.builtin.include_role")


class LookupModule(LookupBase):
    """The host that a task runs on -> packages and more."""

    def run(
        self, terms: list[Any], variables: Mapping[str, Any] | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return a list of the one dictionary."""
        if terms or variables is None:
            raise AnsibleLookupError("role_packages takes no argument, and needs a host")
        # Both are set before `run`.
        loader: Any = self._loader
        reading = _Reading(loader, self._templar, variables)
        site = Path(reading.value("{{ playbook_dir }}")) / "site.yml"
        groups = {"all", *reading.value("{{ group_names }}")}
        for role in dict.fromkeys(_roles(loader.load_from_file(str(site)), groups)):
            reading.role(role)
        return [reading.needed()]


def _roles(plays: list[dict[str, Any]], groups: set[str]) -> Iterator[str]:
    """Yield the roles that plays run on a host in these groups."""
    for play in plays:
        if "hosts" in play and _is_on(str(play["hosts"]), groups):
            for task in play["tasks"]:
                yield from (task[how]["name"] for how in ROLE if how in task)


def _is_on(pattern: str, groups: set[str]) -> bool:
    """Whether a play's pattern has a host in these groups: GROUP:GROUP:!GROUP, or a role's group."""
    if made := PLAY_HOSTS.fullmatch(pattern):
        return made[1] in groups
    parts = pattern.split(":")
    return any(part in groups for part in parts) and not any(
        part.removeprefix("!") in groups for part in parts if part.startswith("!")
    )


class _Reading:
    """The tasks of roles, with the variables of one host."""

    def __init__(self, loader: Any, templar: Any, variables: Mapping[str, Any]) -> None:
        self._loader, self._templar = loader, templar
        system, version, codename = RELEASES[variables["base_os"]]
        facts = {
            "distribution": system,
            "distribution_version": version,
            "distribution_major_version": version.partition(".")[0],
            "distribution_release": codename,
        }
        self._variables = {
            **variables,
            "ansible_facts": facts,
            "ansible_check_mode": False,
            "__nvidia_driver_hardware": HARDWARE,
        }
        self._packages: list[str] = []
        self._folders: dict[str, str] = {}

    def value(self, template: Any, more: Mapping[str, Any] | None = None) -> Any:
        """Return the value of a template, with further variables."""
        engine = self._templar.copy_with_new_env(
            available_variables={**self._variables, **(more or {})}
        )
        return engine.template(
            trust_as_template(template) if isinstance(template, str) else template
        )

    def role(self, name: str, more: Mapping[str, Any] | None = None) -> None:
        """Note what a role installs."""
        folder = role_folder(name)
        files = {kind: folder / kind / "main.yml" for kind in ("defaults", "vars")}
        own = {kind: self._load(path) or {} for kind, path in files.items()}
        values = {
            **own["defaults"],
            **self._variables,
            **own["vars"],
            **(more or {}),
            # Where lookups look for files of the role.
            "ansible_search_path": [str(folder)],
        }
        self._tasks(self._load(folder / "tasks/install.yml") or [], values)
        for half in ("install", "configure"):
            for task in self._load(folder / f"tasks/{half}.yml") or []:
                self._command(task, values)

    def _load(self, path: Path) -> Any:
        if not path.is_file():
            return None
        return self._loader.load_from_file(str(path), trusted_as_template=True)

    def _tasks(self, tasks: list[dict[str, Any]], values: Mapping[str, Any]) -> None:
        for task in tasks:
            if task.keys().isdisjoint({"block", PACKAGES, *ROLE}):
                continue
            if not self._may_run(task.get("when", True), values):
                continue
            self._tasks(task.get("block", []), values)
            if PACKAGES in task:
                self._packages += self.value(task[PACKAGES]["names"], values)
            for how in ROLE:
                if how in task:
                    self.role(task[how]["name"], {**values, **task.get("vars", {})})

    def _command(self, task: dict[str, Any], values: Mapping[str, Any]) -> None:
        made = task.get(COMMAND, {}).get("creates")
        if not made or not self._may_run(task.get("when", True), values):
            return
        argv = self.value(task[COMMAND]["argv"], values)
        if argv[0] == INSTALLS:
            self._folders[self.value(made, values)] = shlex.join(argv)

    def _may_run(self, condition: Any, values: Mapping[str, Any]) -> bool:
        """Whether a task may run: what is known only on the host is no reason to leave it out."""
        if isinstance(condition, bool):
            return condition
        conditions = condition if isinstance(condition, list) else [condition]
        try:
            return all(self.value(f"{{{{ ({each}) | bool }}}}", values) for each in conditions)
        except AnsibleError:
            return True

    def needed(self) -> dict[str, Any]:
        """Return all that was noted, each once."""
        additions = self._of("nvidia_driver_additions", [])
        repositories = [
            self._of("nvidia_driver_repository", ""),
            *(addition["repository"] for addition in additions),
        ]
        builds = self._of("software_installations", [])
        versions = [name for name in self._packages if "=" in name]
        return {
            # Of two roles one may name a version.
            "packages": sorted({*self._packages} - {name.partition("=")[0] for name in versions}),
            "repositories": [url for url in dict.fromkeys(repositories) if url],
            "images": [image for image in [self._of("cephadm_image", "")] if image],
            "builds": {build["root"]: build["build"] for build in builds if build["build"]}
            | self._folders,
        }

    def _of(self, name: str, without: Any) -> Any:
        return self.value(self._variables[name]) if name in self._variables else without
