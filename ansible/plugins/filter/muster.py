# SPDX-License-Identifier: Apache-2.0
"""The filters of definition.yml and of the role verify: thin wrappers around muster's functions."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

# The lookup role_variables needs it, in a process per host. Ansible loads this file once, before
# those processes: an import takes a sixth of a second.
import muster.render.role_variables  # noqa: F401
from muster.catalog import printable
from muster.definition import DefinitionError, load, secret_values
from muster.verify import reports, verdict

CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{40,1000}:")
"""What munge prints. Ansible takes the credentials out of all that the controller reports, so a host
must not send another text in place of one."""


def definition_errors(inventory: str) -> list[str]:
    """Return the errors in the definition of an inventory's folder, with file and line."""
    try:
        load(Path(inventory))
    except DefinitionError as error:
        return [str(problem) for problem in error.problems]
    return []


def secret_errors(
    secrets: Any, cluster: Any, groups: Mapping[str, Collection[str]], hosts: Collection[str]
) -> list[str]:
    """Return what is wrong with the secrets that hosts of a run need; no value is in it.

    `secrets`, `cluster` and `groups`: Ansible's variables. `hosts`: those of the run.
    """
    if not isinstance(secrets, Mapping):
        return ["`secrets` is no mapping; run: muster secrets"]
    in_run = [name for name, members in groups.items() if not set(members).isdisjoint(hosts)]
    needed = secret_values.needed(cluster, in_run)
    # A value is a template until it is asked for: in the cloud that asks Secret Manager.
    found = [secret_values.missing(needed, secrets)]
    errors = [f"{wrong.message}; {wrong.remedy}" for wrong in found if wrong]
    for name in needed:
        wrong = secret_values.wrong(name, secrets[name]) if name in secrets else None
        if wrong:
            errors.append(f"secrets.{name}: {wrong.message}; {wrong.remedy}")
    return errors


def title(cluster: Any) -> str:
    """Return the cluster's name, even of a definition that is wrong."""
    return str(cluster.get("name", "?")) if isinstance(cluster, dict) else "?"


def credentials(hosts: dict[str, Any]) -> dict[str, str]:
    """Return host -> munge credential of the hosts that could make one; empty for what is none."""
    texts = {
        host: report["credential"]["text"]
        for host, report in reports.sound(hosts).items()
        if "text" in report["credential"]
    }
    return {host: text if CREDENTIAL.fullmatch(text) else "" for host, text in texts.items()}


def problems(*said: Any) -> list[str]:
    """Return `verdict.problems` for a terminal: root of a host says what it likes in its report."""
    return [printable.one_line(sentence) for sentence in verdict.problems(*said)]


def notes(*said: Any) -> list[str]:
    """Return `verdict.notes` for a terminal."""
    return [printable.one_line(sentence) for sentence in verdict.notes(*said)]


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "muster_definition_errors": definition_errors,
            "muster_secret_errors": secret_errors,
            "muster_title": title,
            "muster_credentials": credentials,
            "muster_problems": problems,
            "muster_notes": notes,
        }
