"""The files that ansible/image.yml reads: of each role only what its install half needs.

An image is rebuilt when one of these changes, so what only a configure half reads must not be
among them, not even the variables of a role that its install half doesn't use.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.definition import yaml_file
from muster.gcp import builder_vm
from muster.gcp.archive import BundleError

PLAYBOOK = "ansible/image.yml"
LOCK = "requirements-vm.txt"
COLLECTION = "muster.slurm"
PLUGINS = f"ansible/collections/ansible_collections/{COLLECTION.replace('.', '/')}/plugins"
"""The collection's modules and plugins, in a folder beside the playbooks where Ansible finds it."""
BUILD_PROGRAM = "build_image.py"
"""In the bundle for its digest: what the builder cleans up is part of the image's identity."""

_TASKS = ("import_tasks", "include_tasks")
_ROLES = ("import_role", "include_role")
_SHARED = re.compile(
    rf"^from ansible_collections\.{re.escape(COLLECTION)}"
    r"\.plugins\.(module_utils|plugin_utils)\.(\w+) import",
    re.MULTILINE,
)


def roles(root: Path) -> list[str]:
    """Return the roles whose install halves make the image, in their order."""
    names: list[str] = _plays(root)[0]["vars"]["image_roles"]
    return names


def files(
    root: Path,
    *,
    os: str,
    slurm_version: str,
    nvidia: Mapping[str, Any],
    module_packages: Sequence[str],
) -> dict[str, bytes]:
    """Return the files of the image bundle by their path in it.

    `nvidia` is what the role nvidia_driver takes, without its prefix; `module_packages` are those
    of the distribution that modules need at run time.

    Raises:
        BundleError: an install half reads a file whose name is known only when it runs.

    """
    reading = _Reading(root)
    reading.follow(_plays(root), PLAYBOOK)
    for role in roles(root):
        reading.tasks(role, "install")
    contents = {path: (root / path).read_bytes() for path in (PLAYBOOK, LOCK)}
    for name in reading.plugins:
        for kind in ("action", "modules"):
            contents |= _plugin(root, kind, name)
    for role, texts in reading.roles.items():
        contents |= _role(root / "roles" / role, texts)
    facts = {
        "os": os,
        "slurm_version": slurm_version,
        "nvidia": nvidia,
        "module_packages": module_packages,
        # For the digest alone: from another system, or on a larger disk, another image is made.
        "base": builder_vm.BASE[os],
        "disk_gib": builder_vm.DISK.size_gib,
    }
    return contents | {
        "image.json": json.dumps(facts).encode(),
        BUILD_PROGRAM: builder_vm.startup_script().encode(),
    }


def _plugin(root: Path, kind: str, name: str) -> dict[str, bytes]:
    """Return a plugin and the project's own code that it imports; nothing if it isn't there."""
    path = f"{PLUGINS}/{kind}/{name}.py"
    if not (root / path).exists():
        return {}
    contents = {path: (root / path).read_bytes()}
    for shared, utility in _SHARED.findall(contents[path].decode()):
        contents |= _plugin(root, shared, utility)
    return contents


def _plays(root: Path) -> Any:
    return yaml_file.data((root / PLAYBOOK).read_text(encoding="utf-8"))


@dataclass
class _Reading:
    """The files and modules that tasks refer to, followed from file to file."""

    root: Path
    roles: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Role -> its files of tasks by path below it."""
    plugins: set[str] = field(default_factory=set)
    """The project's own modules that are called."""

    def tasks(self, role: str, name: str) -> None:
        """Read tasks/`name` of a role, and whatever it includes."""
        path = f"tasks/{name.removesuffix('.yml')}.yml"
        seen = self.roles.setdefault(role, {})
        if path in seen:
            return
        file = self.root / "roles" / role / path
        if not file.is_file():
            raise BundleError(f"{PLAYBOOK} needs roles/{role}/{path}, which isn't there")
        seen[path] = file.read_bytes()
        self.follow(yaml_file.data(seen[path]), f"roles/{role}/{path}", role)

    def follow(self, data: Any, where: str, role: str | None = None) -> None:
        """Note the modules and the further files that tasks name."""
        for entry in _mappings(data):
            for key, value in entry.items():
                word = str(key).removeprefix("ansible.builtin.")
                if word in _TASKS and role:
                    named = value if isinstance(value, str) else value["file"]
                    self.tasks(role, _literal(named, where))
                elif word in _ROLES and role:
                    included = _literal(value["name"], where)
                    self.tasks(included, _literal(value.get("tasks_from", "main"), where))
                elif word.startswith(f"{COLLECTION}."):
                    self.plugins.add(word.removeprefix(f"{COLLECTION}."))


def _literal(name: str, where: str) -> str:
    if "{{" in name:
        raise BundleError(f"{where}: write the name out in place of {name}")
    return name


def _mappings(data: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(data, dict):
        yield data
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _mappings(item)


def _role(folder: Path, tasks: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return files of a role: tasks, and the variables, files and templates that these name."""
    text = "".join(content.decode() for content in tasks.values())
    variables = {name: _variables(folder / name) for name in ("defaults/main.yml", "vars/main.yml")}
    used: dict[str, dict[str, Any]] = {name: {} for name in variables}
    extra: dict[str, bytes] = {}
    size = -1
    # A variable or file may name more of them.
    while size != len(text):
        size = len(text)
        for name, known in variables.items():
            for variable in known.keys() - used[name].keys():
                if re.search(rf"\b{variable}\b", text):
                    used[name][variable] = known[variable]
                    text += json.dumps(known[variable])
        for path in _named(folder, text):
            name = path.relative_to(folder).as_posix()
            if name not in extra:
                extra[name] = path.read_bytes()
                text += extra[name].decode(errors="replace") if path.suffix == ".j2" else ""
    # As JSON, which is YAML too: a new comment is no reason to rebuild the image.
    written = {
        name: json.dumps(values, ensure_ascii=False, sort_keys=True).encode()
        for name, values in used.items()
        if values
    }
    prefix = f"roles/{folder.name}"
    return {f"{prefix}/{name}": data for name, data in {**tasks, **extra, **written}.items()}


def _variables(file: Path) -> dict[str, Any]:
    return yaml_file.data(file.read_text(encoding="utf-8")) or {} if file.exists() else {}


def _named(folder: Path, text: str) -> Iterator[Path]:
    """The files below files/ and templates/ whose path is in a text."""
    for kind in ("files", "templates"):
        for path in sorted((folder / kind).rglob("*")):
            if path.is_file() and path.relative_to(folder / kind).as_posix() in text:
                yield path
