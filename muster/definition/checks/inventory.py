"""Checks of the variables in the other files of group_vars/all."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, source_check
from muster.definition.sources import Sources
from muster.definition.spelling import nearest


def _variables(sources: Sources) -> Iterator[tuple[str, str]]:
    """File and name of each variable beside cluster.yml."""
    for file, document in sources.others.items():
        for name in document.data if isinstance(document.data, dict) else ():
            yield file, name


def _at(sources: Sources, file: str, name: str, message: str, remedy: str) -> Finding:
    return Finding((name,), message, remedy, file, sources.others[file].line((name,)))


_ELSEWHERE = "set it in host_vars or group_vars/<group>, or use the key of `secrets` for it"


@source_check("role-secret")
def role_secret(sources: Sources) -> Iterator[Finding]:
    """A role's secret in group_vars/all: that of `secrets` would win."""
    for file, name in _variables(sources):
        if name in sources.from_secrets:
            yield _at(
                sources,
                file,
                name,
                "Muster sets it from `secrets`, so it is without effect here",
                _ELSEWHERE,
            )
    # For Ansible a group's variables in hosts.yml are weaker than any file of group_vars/all.
    for path, variables in sources.tree.group_vars.items():
        for name in sources.from_secrets & variables.keys():
            yield Finding(
                (path[-2], "vars", name),
                "Muster sets it from `secrets`, so it is without effect here",
                _ELSEWHERE,
                "hosts",
                sources.hosts.line((*path, name)),
            )


@source_check("cluster-elsewhere")
def cluster_elsewhere(sources: Sources) -> Iterator[Finding]:
    """`cluster` in a second file: Ansible would take the last one."""
    for file, name in _variables(sources):
        if name == "cluster":
            yield _at(
                sources,
                file,
                name,
                "`cluster` is set in a second file",
                "keep it in cluster.yml alone",
            )


@source_check("cluster-misspelt")
def cluster_misspelt(sources: Sources) -> Iterator[Finding]:
    """A variable that is nearly called `cluster` or `secrets`, which nothing would read."""
    for file, name in _variables(sources):
        near = nearest(name, ("cluster", "secrets"))
        if near and name != near and abs(len(name) - len(near)) <= 1:
            yield _at(sources, file, name, f'"{name}" has no meaning', f'did you mean "{near}"?')
