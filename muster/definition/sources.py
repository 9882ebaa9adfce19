"""The files that make up a definition, as read and not yet checked."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from muster.definition import hosts_file, yaml_file
from muster.definition.definition import Hosts
from muster.definition.hosts_file import HostsTree
from muster.definition.schema_errors import SchemaError
from muster.definition.yaml_file import Document, Fault

CLUSTER_FILE = "group_vars/all/cluster.yml"
HOSTS_FILE = "hosts.yml"
SECRETS_FILE = "group_vars/all/secrets.yml"
ROOT = Path(__file__).resolve().parents[2]
# What Ansible reads in group_vars and host_vars: these endings or none.
_SUFFIXES = {".yml", ".yaml", ".json", ""}


@dataclass
class Sources:
    """Everything that is read from an inventory."""

    cluster: Document
    hosts: Document
    tree: HostsTree
    others: dict[str, Document] = field(default_factory=dict)
    """Further files of group_vars/all, by their path in the inventory."""
    overrides: dict[str, Document] = field(default_factory=dict)
    """Files of single groups and hosts in group_vars and host_vars, by their path too."""
    folder: Path | None = None
    """The inventory's; None: the definition came without files."""
    members: Hosts | None = None
    """Groups and hosts; None where they don't follow from hosts.yml or the definition."""
    missing: list[str] = field(default_factory=list)
    schema_errors: list[SchemaError] = field(default_factory=list)
    from_secrets: frozenset[str] = frozenset()
    """Role variables that Muster takes from the secrets."""
    role_variables: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The variables that each role takes."""
    secrets_mode: int | None = None
    """Permission bits of secrets.yml; None: no such file."""
    secrets_in_git: bool = False

    @property
    def definition(self) -> Any:
        """The value of `cluster`; None where there is none."""
        data = self.cluster.data
        return data.get("cluster") if isinstance(data, dict) else None

    def document(self, file: str) -> Document:
        """The document that a finding calls `cluster`, `hosts` or by its path."""
        return self._named()[file]

    def faults(self, *kinds: str) -> list[tuple[str, Fault]]:
        """What was found wrong while reading, with the file that has it."""
        named = self._named().items()
        faults = [(name, fault) for name, document in named for fault in document.faults]
        faults += [("hosts", fault) for fault in self.tree.faults]
        return [(name, fault) for name, fault in faults if not kinds or fault.kind in kinds]

    def _named(self) -> dict[str, Document]:
        return {"cluster": self.cluster, "hosts": self.hosts, **self.others, **self.overrides}


def overridden(file: str) -> str:
    """The group or host for which Ansible reads a file of group_vars or host_vars."""
    name = PurePath(file).parts[1]
    return PurePath(name).stem if PurePath(name).suffix in _SUFFIXES else name


def _shown(file: Path) -> str:
    """A path as users would type it: relative to the working directory if it is below that."""
    try:
        return str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def _from_secrets() -> frozenset[str]:
    file = ROOT / "ansible" / "group_vars" / "all" / "secret_variables.yml"
    data = yaml_file.read(file, _shown(file)).data if file.exists() else None
    return frozenset(data if isinstance(data, dict) else ())


def _role_variables() -> dict[str, frozenset[str]]:
    by_role: dict[str, frozenset[str]] = {}
    for file in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        entries = yaml_file.read(file, _shown(file)).data["argument_specs"].values()
        by_role[file.parents[1].name] = frozenset(
            name for entry in entries for name in entry.get("options", {})
        )
    return by_role


def _tracked(file: Path) -> bool:
    """Whether git has the file; False where there is no git or no repository."""
    try:
        answer = subprocess.run(
            ["git", "ls-files", "--error-unmatch", file.name],
            cwd=file.parent,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def _other_files(inventory: Path) -> list[Path]:
    folder = inventory / "group_vars" / "all"
    known = {inventory / CLUSTER_FILE}
    candidates = [
        inventory / "group_vars" / f"all{suffix}" for suffix in (".yml", ".yaml", ".json")
    ]
    if folder.is_dir():
        candidates += sorted(folder.rglob("*"))
    return [
        file
        for file in candidates
        if file.is_file() and file.suffix in _SUFFIXES and file not in known
        if not file.name.startswith(".")
    ]


def _override_files(inventory: Path) -> list[Path]:
    return [
        file
        for folder in ("group_vars", "host_vars")
        for file in sorted((inventory / folder).rglob("*"))
        if file.is_file() and file.suffix in _SUFFIXES
        if not any(part.startswith(".") for part in file.relative_to(inventory).parts)
        if (folder, overridden(str(file.relative_to(inventory)))) != ("group_vars", "all")
    ]


def _documents(inventory: Path, files: list[Path]) -> dict[str, Document]:
    """Files by their path in the inventory; one that can't be read has a fault that says so."""
    documents: dict[str, Document] = {}
    for file in files:
        name = str(file.relative_to(inventory))
        try:
            documents[name] = yaml_file.read(file, _shown(file))
        except OSError as error:
            documents[name] = _unreadable(file, error)
    return documents


def _unreadable(file: Path, error: OSError) -> Document:
    said = (error.strerror or "can't be read").lower()
    return Document(_shown(file), faults=[Fault("file-missing", 1, (), said)])


def read(
    inventory: Path,
    from_secrets: frozenset[str] | None = None,
    role_variables: Mapping[str, frozenset[str]] | None = None,
) -> Sources:
    """Reads the files of an inventory; what can't be read is a fault of the result.

    `from_secrets`: role variables that Muster takes from the secrets, by default those of this
    checkout's secret_variables.yml.
    `role_variables`: the variables that each role takes, by default as this checkout's roles say.
    """
    missing = []
    documents: list[Document] = []
    for name in (CLUSTER_FILE, HOSTS_FILE):
        file = inventory / name
        if name == HOSTS_FILE and not file.exists() and _in_the_cloud(documents[0]):
            documents.append(Document(_shown(file)))
            continue
        try:
            documents.append(yaml_file.read(file, _shown(file)))
        except OSError as error:
            missing.append(name)
            documents.append(_unreadable(file, error))
    cluster, hosts = documents
    sources = Sources(cluster, hosts, hosts_file.parse(hosts), missing=missing)
    sources.folder = inventory
    sources.from_secrets = _from_secrets() if from_secrets is None else from_secrets
    sources.role_variables = _role_variables() if role_variables is None else role_variables
    sources.others = _documents(inventory, _other_files(inventory))
    sources.overrides = _documents(inventory, _override_files(inventory))
    secrets = inventory / SECRETS_FILE
    if secrets.is_file():
        sources.secrets_mode = secrets.stat().st_mode & 0o777
        sources.secrets_in_git = _tracked(secrets)
    _add_host_vars(sources)
    return sources


def _in_the_cloud(document: Document) -> bool:
    """Whether a definition's hosts are VMs, which no hosts.yml names."""
    cluster = document.data.get("cluster") if isinstance(document.data, dict) else None
    return isinstance(cluster, dict) and cluster.get("cloud") is not None


def _add_host_vars(sources: Sources) -> None:
    """Adds the variables of host_vars, which for Ansible win over those of hosts.yml."""
    known = sources.tree.vars
    for file, document in sources.overrides.items():
        if file.startswith("host_vars/") and isinstance(document.data, dict):
            host = overridden(file)
            known[host] = {**known.get(host, {}), **document.data}
