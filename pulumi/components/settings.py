"""The stack's configuration, and the definition that it names."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_gcp as gcp

from muster.definition import Definition, DefinitionError, load, warnings
from muster.definition.schema.cloud import Cloud
from muster.gcp import preflight
from muster.gcp.api import CloudError, Compute
from muster.gcp.names import Names

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
INVENTORY = "inventories/cloud"
KEYS = ("inventory",)


@dataclass(frozen=True)
class Settings:
    """One cluster in one project."""

    project: str
    inventory: Path
    definition: Definition
    cloud: Cloud
    names: Names


def read() -> Settings:
    """Return the checked settings: errors are reported before anything is created.

    Raises:
        pulumi.RunError: a value is missing or wrong, or the definition is; one sentence each.

    """
    unknown = sorted(
        key
        for key in json.loads(os.environ.get("PULUMI_CONFIG", "{}"))
        if key.startswith("muster:") and key.removeprefix("muster:") not in KEYS
    )
    if unknown:
        raise pulumi.RunError(
            f"{', '.join(unknown)} is no setting of Muster: `pulumi config rm {unknown[0]}`; "
            f"there is muster:{', muster:'.join(KEYS)}"
        )
    project = gcp.config.project
    if not project:
        raise pulumi.RunError(
            "the project is missing: `pulumi config set gcp:project PROJECT` with its id"
        )
    inventory = ROOT / (pulumi.Config().get("inventory") or INVENTORY)
    if not inventory.is_dir():
        raise pulumi.RunError(
            f"muster:inventory: there is no folder {inventory}; `pulumi config set "
            f"muster:inventory {INVENTORY}` names one below {ROOT}"
        )
    try:
        definition = load(inventory)
    except DefinitionError as error:
        raise pulumi.RunError("\n".join(str(problem) for problem in error.problems)) from None
    cloud = definition.cluster.cloud
    if cloud is None:
        raise pulumi.RunError(
            f"{inventory} describes a cluster of your own machines: run site.yml for it, or name "
            "another folder with `pulumi config set muster:inventory FOLDER`"
        )
    name = definition.cluster.name
    if pulumi.get_stack() != name:
        raise pulumi.RunError(
            f"the stack is {pulumi.get_stack()}, and {inventory} describes {name}, which would "
            f"replace all of it: `pulumi stack select --create {name}`"
        )
    return Settings(project, inventory, definition, cloud, Names(name, project))


def check(settings: Settings) -> None:
    """Ask Google whether the cluster can be created, and print the definition's warnings.

    Raises:
        pulumi.RunError: it can't; one sentence for each reason.

    """
    try:
        compute = Compute(settings.project)
        problems = preflight.problems(compute, settings.definition.cluster)
    except CloudError as error:
        problems = [str(error)]
    if problems:
        raise pulumi.RunError("\n".join(problems))
    for warning in warnings.warnings(settings.definition):
        pulumi.warn(warning)
