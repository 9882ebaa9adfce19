"""Checks of files in group_vars and host_vars: that their group, host and variables exist."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, source_check, suggestion
from muster.definition.checks.variables import variables
from muster.definition.sources import SECRETS_FILE, Sources, overridden

# Groups that Ansible makes.
_ALWAYS = ("all", "ungrouped")


def _without_target(sources: Sources, folder: str, known: set[str]) -> Iterator[tuple[str, str]]:
    """Each group or host that is not known, with the first of its files."""
    said: set[str] = set()
    for file in sources.overrides:
        name = overridden(file)
        if file.startswith(f"{folder}/") and name not in known | said:
            said.add(name)
            yield name, file


@source_check("variables-of-no-group")
def variables_of_no_group(sources: Sources) -> Iterator[Finding]:
    """A file in group_vars for a group that hosts.yml does not have: Ansible never reads it."""
    if sources.members is None:
        return
    known = {*sources.members.groups, *_ALWAYS}
    for name, file in _without_target(sources, "group_vars", known):
        remedy = suggestion(name, known, "name the file after a group of hosts.yml")
        yield Finding((), f'there is no group "{name}"', remedy, file, 1)


@source_check("variables-of-no-host")
def variables_of_no_host(sources: Sources) -> Iterator[Finding]:
    """A file in host_vars for a host that hosts.yml does not have: Ansible never reads it."""
    if sources.members is None:
        return
    known = set(sources.members.groups["all"])
    for name, file in _without_target(sources, "host_vars", known):
        yield Finding(
            (),
            f'there is no host "{name}"',
            "name the file after a host of hosts.yml, or remove it",
            file,
            1,
        )


@source_check("variables-shape")
def variables_shape(sources: Sources) -> Iterator[Finding]:
    """A file of group_vars or host_vars that is no mapping of variables: Ansible ends with it."""
    for file, document in {**sources.others, **sources.overrides}.items():
        if file != SECRETS_FILE and not isinstance(document.data, dict | None):
            message = "the file is no mapping of variables"
            remedy = "write each variable in its own line, as in NAME: VALUE, or take the file away"
            yield Finding((), message, remedy, file, document.line(()))


@source_check("role-variable-unknown")
def role_variable_unknown(sources: Sources) -> Iterator[Finding]:
    """A variable that begins like those of a role, and that the role does not take."""
    roles: dict[str, str | None] = {}  # of the same few names for each of thousands of hosts
    for given in variables(sources):
        name = given.name
        if name not in roles:
            begins = (role for role in sources.role_variables if name.startswith(f"{role}_"))
            roles[name] = next(begins, None)
        role = roles[name]
        # secrets.yml may have secrets of a site under such names.
        if role and name not in sources.role_variables[role] and given.file != SECRETS_FILE:
            message = f'the role {role} has no variable "{name}"'
            known = sources.role_variables[role]
            yield given.finding(message, suggestion(name, known, f"see roles/{role}/README.md"))
