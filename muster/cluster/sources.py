"""The files that make up a definition, read and not yet understood."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.cluster import hostsfile, yamlfile
from muster.cluster.hostsfile import HostsTree
from muster.cluster.schemaerrors import SchemaError
from muster.cluster.yamlfile import Document, Fault

CLUSTER_FILE = "group_vars/all/cluster.yml"
HOSTS_FILE = "hosts.yml"
SECRETS_FILE = "group_vars/all/secrets.yml"
# What Ansible reads in group_vars: these endings or none.
_SUFFIXES = {".yml", ".yaml", ".json", ""}


@dataclass
class Sources:
    """All that is read of an inventory."""

    cluster: Document
    hosts: Document
    tree: HostsTree
    others: dict[str, Document] = field(default_factory=dict)
    """Further files of group_vars/all, by their path in the inventory."""
    missing: list[str] = field(default_factory=list)
    schema_errors: list[SchemaError] = field(default_factory=list)
    wired: frozenset[str] = frozenset()
    """Role variables that Muster sets from the definition."""
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
        return {"cluster": self.cluster, "hosts": self.hosts}.get(file) or self.others[file]

    def faults(self, *kinds: str) -> list[tuple[str, Fault]]:
        """What was found wrong while reading, with the file that has it."""
        named = {"cluster": self.cluster, "hosts": self.hosts, **self.others}
        found = [(name, fault) for name, document in named.items() for fault in document.faults]
        found += [("hosts", fault) for fault in self.tree.faults]
        return [(name, fault) for name, fault in found if not kinds or fault.kind in kinds]


def _shown(file: Path) -> str:
    """A path as its reader would type it: from the working directory where it is below that."""
    try:
        return str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def _wired() -> frozenset[str]:
    file = Path(__file__).resolve().parents[2] / "ansible" / "group_vars" / "all" / "wiring.yml"
    data = yamlfile.read(file, _shown(file)).data if file.exists() else None
    return frozenset(data if isinstance(data, dict) else ())


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
    found = [inventory / "group_vars" / f"all{suffix}" for suffix in (".yml", ".yaml", ".json")]
    if folder.is_dir():
        found += sorted(folder.rglob("*"))
    return [
        file
        for file in found
        if file.is_file() and file.suffix in _SUFFIXES and file not in known
        if not file.name.startswith(".")
    ]


def read(inventory: Path, wired: frozenset[str] | None = None) -> Sources:
    """Reads the files of an inventory; what can't be read is a fault of the result.

    `wired`: role variables that Muster sets, by default those of this checkout's wiring.yml.
    """
    missing = []
    documents: list[Document] = []
    for name in (CLUSTER_FILE, HOSTS_FILE):
        file = inventory / name
        if name == HOSTS_FILE and not file.exists() and _in_the_cloud(documents[0]):
            documents.append(Document(_shown(file)))
            continue
        try:
            documents.append(yamlfile.read(file, _shown(file)))
        except OSError as error:
            missing.append(name)
            document = Document(_shown(file))
            document.faults.append(
                Fault("file-missing", 1, (), (error.strerror or "can't be read").lower())
            )
            documents.append(document)
    cluster, hosts = documents
    sources = Sources(cluster, hosts, hostsfile.parse(hosts), missing=missing)
    sources.wired = _wired() if wired is None else wired
    for file in _other_files(inventory):
        name = str(file.relative_to(inventory))
        try:
            sources.others[name] = yamlfile.read(file, _shown(file))
        except OSError as error:
            document = Document(_shown(file))
            document.faults.append(
                Fault("file-missing", 1, (), (error.strerror or "can't be read").lower())
            )
            sources.others[name] = document
    secrets = inventory / SECRETS_FILE
    if secrets.is_file():
        sources.secrets_mode = secrets.stat().st_mode & 0o777
        sources.secrets_in_git = _tracked(secrets)
    _add_host_vars(inventory, sources.tree)
    return sources


def _in_the_cloud(document: Document) -> bool:
    """Whether a definition's hosts are VMs, which no hosts.yml names."""
    cluster = document.data.get("cluster") if isinstance(document.data, dict) else None
    return isinstance(cluster, dict) and cluster.get("cloud") is not None


def _add_host_vars(inventory: Path, tree: HostsTree) -> None:
    """Adds host_vars/HOST.yml, which Ansible prefers to what hosts.yml says."""
    folder = inventory / "host_vars"
    if not folder.is_dir():
        return
    for file in sorted(folder.glob("*.y*ml")):
        document = yamlfile.read(file, _shown(file))
        if isinstance(document.data, dict):
            tree.vars[file.stem] = {**tree.vars.get(file.stem, {}), **document.data}
