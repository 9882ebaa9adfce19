"""The files that make up a definition, as read and not yet checked."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from muster.definition import hosts_file, inventory_files, yaml_file
from muster.definition.definition import HOST_GROUPS, Hosts
from muster.definition.hosts_file import HostsTree
from muster.definition.inventory_files import ENDINGS, GROUP_VARS, HOST_VARS, said
from muster.definition.schema_errors import SchemaError
from muster.definition.yaml_file import NO_YAML, VAULT_HEADER, Document, Fault

CLUSTER_FILE = "group_vars/all/cluster.yml"
HOSTS_FILE = "hosts.yml"
SECRETS_FILE = "group_vars/all/secrets.yml"
ROOT = Path(__file__).resolve().parents[2]
RoleVariables = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Role, variable and the words of meta/argument_specs.yml, such as `type`."""


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
    role_variables: RoleVariables = field(default_factory=dict)
    """The variables that each role takes, with what its specification says of them."""
    secret_files: dict[str, int] = field(default_factory=dict)
    """secrets.yml, and copies of it beside it, with their permission bits; not encrypted ones."""
    in_git: frozenset[str] = frozenset()
    """The files in group_vars and host_vars that git has."""
    index: dict[str, list[Any]] | None = None
    """The variables of all files by name, once a check has asked for them."""
    further_lists: list[str] = field(default_factory=list)
    """What Ansible would read as lists of hosts beside hosts.yml."""

    @property
    def definition(self) -> Any:
        """The value of `cluster`; None where there is none."""
        data = self.cluster.data
        return data.get("cluster") if isinstance(data, dict) else None

    def document(self, file: str) -> Document:
        """The document that a finding calls `cluster`, `hosts` or by its path."""
        known = self._named().get(file)
        return known or Document(_shown((self.folder or Path()) / file))

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
    return PurePath(name).stem if PurePath(name).suffix in ENDINGS else name


def _shown(file: Path) -> str:
    """A path as users would type it: relative to the working directory if it is below that."""
    # Path.resolve() fails where links lead in a circle.
    real = Path(os.path.realpath(file))
    return str(real.relative_to(Path.cwd()) if real.is_relative_to(Path.cwd()) else file)


def _from_secrets() -> frozenset[str]:
    file = ROOT / "ansible" / "group_vars" / "all" / "secret_variables.yml"
    data = yaml_file.read(file, _shown(file)).data if file.exists() else None
    return frozenset(data if isinstance(data, dict) else ())


def _role_variables() -> RoleVariables:
    by_role: dict[str, dict[str, Any]] = {}
    for file in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        entries = yaml_file.read(file, _shown(file)).data["argument_specs"].values()
        by_role[file.parents[1].name] = {
            name: option for entry in entries for name, option in entry.get("options", {}).items()
        }
    return by_role


def _in_git(inventory: Path) -> frozenset[str]:
    """The files with variables that git has, by their path; none where there is no repository."""
    try:
        answer = subprocess.run(
            ["git", "ls-files", "-z", GROUP_VARS, HOST_VARS],
            cwd=inventory,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    names = answer.stdout.split(b"\0") if answer.returncode == 0 else []
    return frozenset(os.fsdecode(name) for name in names)


def _secret_files(inventory: Path) -> dict[str, int]:
    """Permission bits of secrets.yml and of what an editor leaves beside it, by path."""
    path = inventory / SECRETS_FILE
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent))
    except OSError:
        return {}  # where that is wrong, cluster.yml can't be read either
    modes = {}
    for file in (path.parent / name for name in names if name.lstrip(".").startswith(path.name)):
        try:
            if file.is_file() and not file.read_bytes().startswith(VAULT_HEADER.encode()):
                modes[str(file.relative_to(inventory))] = file.stat().st_mode & 0o777
        except OSError:
            continue  # who runs this can't read it either
    return modes


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
    kind = "file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable"
    return Document(_shown(file), faults=[Fault(kind, 1, (), said(error))])


def _add_variables(sources: Sources, inventory: Path) -> None:
    """Adds the files of group_vars and host_vars, and those that Ansible would not read."""
    found = inventory_files.variable_files(inventory)
    known = {*sources.tree.own_hosts, *sources.tree.vars, *HOST_GROUPS, "all", "ungrouped"}
    known |= {host for members in sources.tree.members.values() for host in members}
    cluster = inventory / CLUSTER_FILE
    files = []
    for file in found.files:
        below = file.relative_to(inventory)
        # Without an ending it may be a note (README), which Ansible reads for no group.
        is_note = len(below.parts) == 2 and not below.suffix
        unread = file in cluster.parents  # a file where cluster.yml's folder should be
        if file != cluster and not unread and not (is_note and below.name not in known):
            files.append(file)
    documents = _documents(inventory, files)
    for trouble in found.troubles:
        if CLUSTER_FILE in sources.missing and trouble.path in (cluster, *cluster.parents):
            continue  # the fault of cluster.yml says so
        name = str(trouble.path.relative_to(inventory))
        fault = Fault(trouble.kind, 1, (), trouble.text)
        documents[name] = Document(_shown(trouble.path), faults=[fault])
    for name, document in documents.items():
        folder, *inside = PurePath(name).parts
        of_all = not inside or (folder == GROUP_VARS and overridden(name) == "all")
        (sources.others if of_all else sources.overrides)[name] = document
    sources.secret_files = _secret_files(inventory)
    sources.in_git = _in_git(inventory) if sources.secret_files else frozenset()


def read(
    inventory: Path,
    from_secrets: frozenset[str] | None = None,
    role_variables: RoleVariables | None = None,
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
        if name == HOSTS_FILE and _may_be_in_the_cloud(documents[0]) and not os.path.lexists(file):
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
    _add_variables(sources, inventory)
    if not _in_the_cloud(cluster) and os.path.lexists(inventory / HOSTS_FILE):
        sources.further_lists = inventory_files.further_lists(inventory, HOSTS_FILE)
        faults = [*hosts.faults, *sources.tree.faults]
        if not faults and not any(sources.tree.own_hosts.values()):
            sources.tree.faults.append(Fault("hosts-empty", 1, (), "no host is in it"))
    _add_host_vars(sources)
    return sources


def _may_be_in_the_cloud(document: Document) -> bool:
    """Whether a cluster may have no hosts.yml: also where nobody can read what it is."""
    unread = document.data is None and any(fault.kind in NO_YAML for fault in document.faults)
    return unread or _in_the_cloud(document)


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
