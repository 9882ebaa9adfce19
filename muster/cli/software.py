"""`muster software CLUSTER`: what users load as modules, beside what the definition asks for.

The program muster-software of the role software reports the releases on the controller.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from muster.cli.controller_option import UserOption
from muster.cli.definition_argument import definition_of, inventory_of
from muster.cli.exit_codes import UNREACHED, WRONG
from muster.cli.on_controller import controller_of
from muster.definition import Definition, requirements
from muster.render.releases import releases
from muster.verify.ansible_query import AskError, ask, reports_of

PROGRAM = "/usr/local/sbin/muster-software"
"""Of the role software."""

COLUMNS = ("module", "users load", "the definition asks for", "what site.yml does")


def show(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    user: UserOption = None,
) -> None:
    """Show which release of each module users load, and what the next site.yml changes of that."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    wanted = wanted_of(definition, inventory)
    report = _report(cluster, inventory, definition, user)
    Console(highlight=False).print(table(report, wanted))


def wanted_of(definition: Definition, inventory: Path) -> dict[str, tuple[str, bool]]:
    """Return the folder of each module's release, and whether the play builds it.

    Ends the program if a file of requirements can't be read.
    """
    cluster = definition.cluster
    try:
        texts = requirements.read(definition, inventory)
    except requirements.RequirementsError as error:
        raise _stop(str(error), WRONG) from None
    made = releases(cluster.software, cluster.storage.apps.path, cluster.os, texts)
    modules = cluster.software.modules
    wanted = {}
    for module, release in made.items():
        name, _, version = module.rpartition("/")
        if release.command is not None:
            wanted[module] = (release.root, modules[name][version].built)
    return wanted


def table(report: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, tuple[str, bool]]) -> Table:
    """Return a line for each module.

    Args:
        report: Of the program: module -> what users load, and its releases.
        wanted: Module -> folder of the release that the definition asks for, and whether the play
            builds it.

    """
    grid = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for module in sorted({*report, *wanted}):
        there = report.get(module, {"published": None, "releases": []})
        root, by_play = wanted.get(module, (None, False))
        if root is None and there["published"] is None:
            continue  # only releases that gc has not removed yet
        grid.add_row(
            module,
            _name(there["published"]),
            _name(root),
            _deed(there["published"], there["releases"], root, by_play=by_play),
        )
    return grid


def _deed(published: str | None, there: list[str], root: str | None, *, by_play: bool) -> str:
    """Return what the next run of site.yml does about a module."""
    if root is None:
        return "removes the modulefile"
    if root == published:
        return "nothing"
    if root in there:
        return "publishes it"
    return "builds and publishes it" if by_play else "nothing: build it by hand"


def _name(root: str | None) -> str:
    return Path(root).name if root else "-"


def _report(
    cluster: str, inventory: Path, definition: Definition, user: str | None
) -> dict[str, Any]:
    """Return what the controller says. Ends the program if it says nothing."""
    in_cloud = definition.cluster.cloud is not None
    if in_cloud and (controller := controller_of(cluster, user, None)):
        output, _ = controller.fetch(PROGRAM, "list", "--json")
        return dict(json.loads(output))
    host = definition.hosts.groups["controller"][0]
    try:
        replies = reports_of(ask(inventory, "software.yml", [host], "stdout"), PROGRAM)
    except AskError as error:
        raise _stop(f"error: {error}", UNREACHED) from None
    if replies.unreached:
        raise _stop(replies.unreached[0], UNREACHED)
    return replies.answers[host]


def _stop(message: str, code: int) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(code)
