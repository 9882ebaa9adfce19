# SPDX-License-Identifier: Apache-2.0
"""The variables of all roles on one host, from the definition of its cluster."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from muster.definition import DefinitionError, validate
from muster.render.role_variables import Host, needed_roles, role_variables

DOCUMENTATION = r"""
name: role_variables
short_description: The variables of all roles on one host
description:
  - Gives one dictionary with the role variables that the inventory does not set, and
    C(muster_roles), the roles that the host has because of its definition.
options:
  _terms:
    description: None.
"""

ENDPOINT = "GOOGLE_COMPUTE_CUSTOM_ENDPOINT"


class Given(Mapping[str, Any]):
    """The variables of a host; a value is a template until it is read."""

    def __init__(self, variables: Mapping[str, Any], templar: Any) -> None:
        self._variables = variables
        self._templar = templar

    def __getitem__(self, name: str) -> Any:
        return self._templar.template(self._variables[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


class LookupModule(LookupBase):
    """The host that a task runs on -> its variables."""

    def run(
        self, terms: list[Any], variables: Mapping[str, Any] | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return a list of the one dictionary."""
        if terms or variables is None:
            raise AnsibleLookupError("role_variables takes no term, and needs a host")
        given = Given(variables, self._templar)
        try:
            definition = validate(given["cluster"], given["groups"])
        except DefinitionError as error:
            raise AnsibleLookupError(f"the definition is wrong:\n{error}") from error
        hosts = definition.hosts.groups["all"]
        addresses = {name: variables["hostvars"][name].get("ansible_host", "") for name in hosts}
        host = Host(
            definition=definition,
            name=variables["inventory_hostname"],
            addresses=addresses,
            inventory=Path(variables["inventory_dir"]),
            compute_endpoint=os.environ.get(ENDPOINT, ""),
            given=given,
        )
        effective = role_variables(host)
        missing = {name: value for name, value in effective.items() if name not in given}
        return [{**missing, "muster_roles": needed_roles(host, effective)}]
