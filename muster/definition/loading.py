"""Makes a definition from files or plain data, or reports all problems with it."""

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.definition import indentation, module_versions, schema_errors, sources
from muster.definition.checks import CHECKS, Finding, misspelt
from muster.definition.definition import HOST_GROUPS, Definition, Hosts, cloud_hosts
from muster.definition.hosts_file import HostsTree
from muster.definition.problems import DefinitionError, Problem
from muster.definition.repeats import shortened
from muster.definition.schema.cluster import Cluster
from muster.definition.sources import HOSTS_FILE, Sources
from muster.definition.yaml_file import NO_YAML, Document, Fault, KeyPath, is_below

# If one of these errors is there, the members of groups are unknown.
_HOSTS_UNKNOWN = (
    *("file-missing", "file-unreadable", "hosts-encrypted", *NO_YAML),
    *("key-not-text", "hosts-unknown-key", "hosts-shape", "hosts-range", "hosts-cycle"),
    "hosts-empty",
)


def load(inventory: Path) -> Definition:
    """Reads and checks the definition in an inventory's folder.

    Raises DefinitionError with all errors, each with its file and line.
    """
    return _definition(sources.read(inventory))


def validate(
    cluster: dict[str, Any],
    groups: dict[str, list[str]],
    host_vars: dict[str, dict[str, Any]] | None = None,
) -> Definition:
    """Checks a definition that is already data, as in Ansible: `cluster`, `groups`, `hostvars`.

    Raises DefinitionError with all errors. They have no lines, because there is no file.
    """
    data = _plain(cluster)
    members = {str(group): [str(host) for host in hosts] for group, hosts in groups.items()}
    given = host_vars or {}
    everything = dict.fromkeys(host for hosts in members.values() for host in hosts)
    members["all"] = list(everything)
    hosts = Hosts(members, {host: dict(given.get(host, {})) for host in everything})
    read = Sources(Document("cluster", {"cluster": data}), Document("hosts"), HostsTree())
    return _definition(read, hosts)


def _plain(value: Any) -> Any:
    """Returns a copy in Python's own types: Ansible has subclasses with more attributes."""
    if isinstance(value, dict):
        return {_plain(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _definition(read: Sources, hosts: Hosts | None = None) -> Definition:
    definition, problems = examine(read, hosts)
    if problems or definition is None:
        raise DefinitionError(problems)
    return definition


def examine(read: Sources, hosts: Hosts | None = None) -> tuple[Definition | None, list[Problem]]:
    """Returns the definition, if one can be made, and all problems in the order of the files.

    `hosts`: given if the hosts do not come from a hosts.yml.
    """
    repaired: Definition | None = None
    if isinstance(read.definition, dict):
        beside = indentation.beside_cluster(read.cluster.data)
        whole = {**read.definition, **{key: read.cluster.data[key] for key in beside}}
        versioned, unversioned = module_versions.put_right(whole)
        data, misplaced = indentation.put_right(versioned, beside)
        cluster, errors = schema_errors.apply(data)
        moved = [error for error in unversioned if error.path[0] not in beside]
        moved += [keys.error() for keys in misplaced]
        # What else is wrong below these keys would be told of places that the file does not have.
        places: list[KeyPath] = [(key,) for key in beside]
        places += [error.meant for error in moved if error.meant is not None]
        errors = [e for e in errors if not any(e.path[: len(place)] == place for place in places)]
        read.schema_errors = [*moved, *errors]
        if cluster is not None:
            if cluster.cloud is not None and HOSTS_FILE in read.missing:
                # `cloud` was misspelt or misplaced when the files were read.
                read.hosts = Document(read.hosts.file)
            known = _hosts(cluster, read) if hosts is None else hosts
            repaired = Definition(cluster, _with_host_groups(known))
    if any(file == "cluster" for file, _ in read.faults(*NO_YAML)):
        read.schema_errors = []  # what is no YAML hides what was meant
    unread = hosts is None and any(file == "hosts" for file, _ in read.faults(*_HOSTS_UNKNOWN))
    if repaired is not None and not unread:
        read.members = repaired.hosts
    findings = _source_findings(read)
    if repaired is not None and not any(file == "cluster" for file, _ in read.faults(*NO_YAML)):
        repaired_at = {e.path for e in read.schema_errors if e.kind not in schema_errors.MOVED}
        said_at = {finding.path for _, finding in findings if finding.file == "cluster"}
        said_at |= {error.meant for error in read.schema_errors if error.meant}
        # Nobody knows of which kind such a node set will be.
        said_at |= {error.path[:-1] for error in read.schema_errors if error.is_of_other_kind}
        said_at |= {(key,) for key in indentation.beside_cluster(read.cluster.data)}
        of_definition = _definition_findings(repaired, unread)
        # Both values of a key that hosts.yml has twice are taken: there may be hosts too many.
        twice = {fault.path for file, fault in read.faults("duplicate-key") if file == "hosts"}
        of_definition = [
            (name, finding)
            for name, finding in of_definition
            if finding.file != "hosts" or not is_below(read.tree.place(finding.path), twice)
        ]
        if repaired_at:
            # A name of theirs may be a part of a value of another shape.
            of_definition = [item for item in of_definition if item[0] != misspelt.CHECK]
        said_at |= {
            place
            for name, finding in of_definition
            if name == misspelt.CHECK
            for place in (finding.path, finding.because)
        }
        findings += [
            (name, finding)
            for name, finding in of_definition
            if name == misspelt.CHECK
            or finding.file != "cluster"
            or not any(
                _follows(path, repaired_at, said_at)
                for path in (finding.path, finding.because)
                if path
            )
        ]
    order = {document.file: index for index, document in enumerate((read.cluster, read.hosts))}

    def in_the_file(problem: Problem) -> tuple[int, str, int, str, str]:
        place = (problem.line or 0, problem.path, problem.check)
        return order.get(problem.file, 2), problem.file, *place

    problems = [
        (_subject(read, finding, number), _problem(read, name, finding))
        for number, (name, finding) in enumerate(findings)
    ]
    problems.sort(key=lambda of_subject: in_the_file(of_subject[1]))
    return repaired, sorted(shortened(problems), key=in_the_file)


def _hosts(cluster: Cluster, read: Sources) -> Hosts:
    return read.tree.hosts() if cluster.cloud is None else cloud_hosts(cluster)


def _with_host_groups(hosts: Hosts) -> Hosts:
    missing: dict[str, list[str]] = {n: [] for n in HOST_GROUPS if n not in hosts.groups}
    return replace(hosts, groups={**hosts.groups, **missing})


def _follows(path: KeyPath, repaired_at: set[KeyPath], said_at: set[KeyPath]) -> bool:
    """Whether an error that is already reported can be the cause of a finding.

    A wrong value is replaced by another one. This other value can cause findings about itself,
    about the keys around it and about its siblings. And if the release is unknown, nobody knows
    what SLURM accepts.
    """
    if path[0] in ("slurm", "cgroup") and repaired_at & {("os",), ("slurm_version",)}:
        return True
    return any(path[: len(place)] == place for place in repaired_at | said_at if place) or any(
        place[: len(path)] == path or place[:-1] == path[:-1] for place in repaired_at
    )


def _source_findings(read: Sources) -> list[tuple[str, Finding]]:
    findings = []
    claimed: set[str] = set()
    for check in list(CHECKS.values()):
        if check.of_sources:
            claimed |= check.claims
            findings += [(check.name, finding) for finding in check.of_sources(read)]
    # If no check claims a fault, it is still an error.
    findings += [
        ("other", _in_general_words(file, fault))
        for file, fault in read.faults()
        if fault.kind not in claimed
    ]
    findings += [
        ("other", Finding(error.path, "not possible here", "see docs/reference/cluster.md"))
        for error in read.schema_errors
        if error.kind not in claimed
    ]
    # A fault in the text (a time that YAML reads as a number) is the cause of the schema's error
    # about this value.
    places = {(finding.file, finding.path) for _, finding in findings if finding.line is not None}
    return [
        (name, finding)
        for name, finding in findings
        if finding.line is not None
        or not finding.path
        or (finding.file, finding.path) not in places
    ]


def _in_general_words(file: str, fault: Fault) -> Finding:
    path = fault.path[1:] if file == "cluster" else fault.path
    return Finding(path, fault.text, "see docs/reference/cluster.md", file, fault.line)


def _definition_findings(definition: Definition, without_hosts: bool) -> list[tuple[str, Finding]]:
    return [
        (check.name, finding)
        for check in list(CHECKS.values())
        if check.of_definition and not (without_hosts and check.reads_hosts)
        for finding in check.of_definition(definition)
    ]


def _subject(read: Sources, finding: Finding, number: int) -> Hashable:
    """What a finding is about: its number, but the same for a mistake, or all hosts of a range."""
    if finding.mistake:
        return finding.mistake
    place = read.tree.place(finding.path) if finding.file == "hosts" else ()
    one_of_range = place and len(finding.path) == 2 and finding.path[-1] != place[-1]
    return place if one_of_range and finding.line is None else number


def _problem(read: Sources, name: str, finding: Finding) -> Problem:
    document = read.document(finding.file)
    path, line = finding.path, finding.line
    if finding.file == "hosts" and line is None:
        place = read.tree.place(path)
        line = document.line(place)
        if len(path) == 2 and len(place) >= 3:
            # The group that names the host: ..., group, "hosts", host.
            path = (place[-3], path[1])
    elif finding.file == "cluster" and line is None:
        line = document.line(("cluster", *path))
    # Items of a list have no name: the line shows which item it is.
    shown = ".".join(str(key) for key in path if not isinstance(key, int))
    message = finding.message
    if finding.other and (there := read.cluster.line(("cluster", *finding.other))):
        message += f" ({read.cluster.file}:{there})"
    return Problem(document.file, line, shown, message, finding.remedy, name)
