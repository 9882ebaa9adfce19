"""Checks that the definition, the secrets and the hosts are each in one file alone."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, source_check
from muster.definition.checks.variables import variables
from muster.definition.secret_names import NAMES
from muster.definition.sources import CLUSTER_FILE, SECRETS_FILE, Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import Vaulted


@source_check("second-inventory")
def second_inventory(sources: Sources) -> Iterator[Finding]:
    """A file or folder beside hosts.yml that Ansible would read as a list of hosts too."""
    for name in sources.further_lists:
        yield Finding(
            (),
            f'Ansible reads "{name}", which is beside it, as a list of hosts too',
            "move it out of the folder, or begin its name with a dot",
            "hosts",
            1,
        )


@source_check("role-secret")
def role_secret(sources: Sources) -> Iterator[Finding]:
    """A role's secret outside `secrets`: it has no effect, or others can read it there."""
    for given in variables(sources, sources.from_secrets):
        # For Ansible a group's variables in hosts.yml are weaker than any file of group_vars/all.
        weaker = given.file in sources.others or (given.file == "hosts" and given.hosts is None)
        if given.file == SECRETS_FILE and given.name in NAMES:
            continue  # it is in its file, and not below `secrets`: another check says so
        if weaker:
            message = "Muster sets it from `secrets`, so it is without effect here"
        elif not isinstance(given.value, Vaulted):
            message = "a secret in plain text, and other hosts have that of `secrets`"
        else:
            continue
        yield given.finding(message, "take it out, and use the key of `secrets` for it")


@source_check("cluster-elsewhere")
def cluster_elsewhere(sources: Sources) -> Iterator[Finding]:
    """`cluster` in a second file: Ansible would take it for some hosts, or for all."""
    yield from _elsewhere(sources, "cluster", CLUSTER_FILE)


@source_check("secrets-elsewhere")
def secrets_elsewhere(sources: Sources) -> Iterator[Finding]:
    """`secrets` in a second file: Ansible would take it for some hosts, or for all."""
    yield from _elsewhere(sources, "secrets", SECRETS_FILE)


def _elsewhere(sources: Sources, name: str, file: str) -> Iterator[Finding]:
    """A variable in another file than its own."""
    for given in variables(sources, (name,)):
        if given.file != file:
            yield given.finding(f"`{name}` is set in a second file", f"keep it in {file} alone")


@source_check("cluster-misspelt")
def cluster_misspelt(sources: Sources) -> Iterator[Finding]:
    """A variable that is nearly called `cluster` or `secrets`, which nothing would read."""
    for given in variables(sources):
        name = given.name
        near = nearest(name, ("cluster", "secrets")) if given.file in sources.others else None
        if near and name != near and abs(len(name) - len(near)) <= 1:
            yield given.finding(f'"{name}" has no meaning', f'did you mean "{near}"?')
