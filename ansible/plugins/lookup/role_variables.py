# SPDX-License-Identifier: Apache-2.0
"""The variables of all roles on one host, from the definition of its cluster."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.muster.slurm.plugins.plugin_utils.role_arguments import (
    problems,
    role_folder,
)

from muster.definition import Definition, DefinitionError, requirements, validate
from muster.render import role_variables

DOCUMENTATION = r"""
name: role_variables
short_description: The variables of all roles, from the definition of their cluster
description:
  - Gives one dictionary with role variables. Those that the inventory sets are not in it.
  - Ends the run where a variable of a role that the host has does not fit the role's specification.
options:
  _terms:
    description:
      - With C(shared), those that are the same on all hosts, and C(muster_addresses), host to address.
      - With C(own), those of the host; C(muster_roles), the roles that it needs because of the definition;
        and C(muster_packages), what its roles install. Needs the former as facts.
    choices: [shared, own]
    required: true
"""

ENDPOINT = "GOOGLE_COMPUTE_CUSTOM_ENDPOINT"


class Given(Mapping[str, Any]):
    """The variables of a host; a value is a template until it is read."""

    def __init__(self, variables: Mapping[str, Any], templar: Any) -> None:
        self.variables = variables
        self._templar = templar

    def __getitem__(self, name: str) -> Any:
        value = self.variables[name]
        try:
            return self._templar.template(value)
        except AnsibleError as error:
            raise AnsibleLookupError(
                f"{name} is needed before the first host is touched, and its value can't be "
                f"computed yet: {error}"
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)


class LookupModule(LookupBase):
    """The host that a task runs on -> variables."""

    def run(
        self, terms: list[Any], variables: Mapping[str, Any] | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return a list of the one dictionary."""
        if terms not in (["shared"], ["own"]) or variables is None:
            raise AnsibleLookupError("role_variables takes `shared` or `own`, and needs a host")
        given = Given(variables, self._templar)
        try:
            # The play before this one, of the same run, may have made groups of roles.
            groups = {name: hosts for name, hosts in given["groups"].items() if not made(name)}
            definition = validate(given["cluster"], groups)
        except DefinitionError as error:
            raise AnsibleLookupError(f"the definition is wrong:\n{error}") from error
        if terms == ["shared"]:
            return [shared(definition, variables)]
        return [self._own(definition, given)]

    def _own(self, definition: Definition, given: Given) -> dict[str, Any]:
        """Return the variables of the host that are its own, after a check of all that it has.

        Roles check their arguments too, each at its turn and in a task of its own: site.yml leaves
        that out.
        """
        host = host_of(definition, given)
        values = own(definition, host)
        roles = role_variables.roles(host, values)
        variables = {**given.variables, **values}
        # Both are set before `run`.
        templar: Any = self._templar
        loader: Any = self._loader

        def value_of(name: str) -> Any:
            try:
                engine = templar.copy_with_new_env(available_variables=variables)
                return engine.template(variables[name])
            except AnsibleError:
                whole = {**defaults(loader, roles), **variables}
                engine = templar.copy_with_new_env(available_variables=whole)
                return engine.template(variables[name])

        if sentences := list(problems(roles, variables, value_of)):
            raise AnsibleLookupError(
                f"role variables of {host.name} are wrong:\n" + "\n".join(sentences)
            )
        return values


def defaults(loader: Any, roles: list[str]) -> dict[str, Any]:
    """Return the defaults of roles, which an inventory's variable may use."""
    values: dict[str, Any] = {}
    for role in roles:
        path = str(role_folder(role) / "defaults/main.yml")
        values |= loader.load_from_file(path, trusted_as_template=True) or {}
    return values


def made(group: str) -> bool:
    """Whether definition.yml makes a group."""
    return group.startswith("role_")


def shared(definition: Definition, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is the same on all hosts; without what one of them sets for itself."""
    # Asked once in a run: each host's variables are computed for it.
    hosts = {name: variables["hostvars"][name] for name in definition.hosts.groups["all"]}
    addresses = {name: host.get("ansible_host", "") for name, host in hosts.items()}
    values = role_variables.shared(definition, addresses)
    kept = {
        name: value
        for name, value in values.items()
        if not any(name in host for host in hosts.values())
    }
    return {**kept, "muster_addresses": addresses}


def host_of(definition: Definition, given: Given) -> role_variables.Host:
    """Return the host with what its variables are made from."""
    return role_variables.Host(
        definition=definition,
        name=given["inventory_hostname"],
        addresses=given["muster_addresses"],
        inventory=Path(given["inventory_dir"]),
        compute_endpoint=os.environ.get(ENDPOINT, ""),
        given=given,
        requirements=requirement_texts(definition, given),
    )


def requirement_texts(definition: Definition, given: Given) -> dict[str, str]:
    """Return the files of requirements, which only the host that builds needs."""
    if given["inventory_hostname"] not in definition.hosts.groups["controller"]:
        return {}
    try:
        return requirements.read(definition, Path(given["inventory_dir"]))
    except requirements.RequirementsError as error:
        raise AnsibleLookupError(str(error)) from error


def own(definition: Definition, host: role_variables.Host) -> dict[str, Any]:
    """Return the other variables of the host."""
    values, needed = role_variables.role_variables(host)
    rest = role_variables.shared(definition, host.addresses)
    return {
        **{name: value for name, value in rest.items() if name not in host.given},
        **values,
        "muster_roles": needed,
        "muster_packages": role_variables.packages(host, values),
    }
