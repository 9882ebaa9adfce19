# SPDX-License-Identifier: Apache-2.0
"""Whether the variables of roles fit the roles' specifications."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ansible.constants
import yaml  # type: ignore[import-untyped]
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator


def role_folder(role: str) -> Path:
    """Return where Ansible takes a role from, which a VM has elsewhere than a checkout.

    Raises:
        AnsibleError: it is in no folder of roles_path.

    """
    # Ansible makes the names of its constants when it is imported.
    folders = getattr(ansible.constants, "DEFAULT_ROLES_PATH")  # noqa: B009
    for folder in folders:
        if (Path(folder) / role).is_dir():
            return Path(folder) / role
    raise AnsibleError(f"role {role} is in none of {', '.join(folders)} (roles_path)")


def problems(
    roles: Iterable[str], names: Iterable[str], value_of: Callable[[str], Any]
) -> Iterator[str]:
    """Yield a sentence for each variable that its role would refuse.

    Args:
        roles: The roles of a host.
        names: The variables that the host has, other than defaults of roles. Those fit.
        value_of: Computes the value of one. If it raises AnsibleError the value depends on what a
            later task finds out: its role fails where it uses a wrong one.

    """
    there = frozenset(names)
    for role in roles:
        options = _options(role)
        values: dict[str, Any] = {}
        for name in there & options.keys():
            try:
                values[name] = value_of(name)
            except AnsibleError:
                del options[name]
        result = ArgumentSpecValidator(options).validate(values, validate_role_argument_spec=True)
        yield from (f"role {role}: {message}" for message in result.error_messages)


def _options(role: str) -> dict[str, Any]:
    """Return the options of a role but secrets, which are read only when a task uses them."""
    text = (role_folder(role) / "meta/argument_specs.yml").read_text(encoding="utf-8")
    # Ansible's own loader, which notes where each word is, takes three times as long.
    main = yaml.load(text, yaml.CSafeLoader)["argument_specs"]["main"]
    return {
        name: option for name, option in main.get("options", {}).items() if not option.get("no_log")
    }
