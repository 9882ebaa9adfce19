"""`muster check`."""

from typing import Annotated

import typer

from muster.cli import check_hosts
from muster.cli.definition_argument import definition_of, inventory_of
from muster.definition import warnings


def check(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    hosts: Annotated[
        bool,
        typer.Option("--hosts", help="Also compare the definition with the machines themselves."),
    ] = False,
) -> None:
    """Report all errors in a definition."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    counts = {
        "hosts": definition.hosts.groups["all"],
        "partitions": definition.cluster.partitions,
        "people": [
            name
            for name, person in definition.cluster.users.people.items()
            if person.state == "present"
        ],
    }
    said = ", ".join(f"{name}: {len(things)}" for name, things in counts.items())
    typer.echo(f"{inventory}: no errors ({said})")
    for warning in warnings.warnings(definition):
        typer.echo(f"warning: {warning}", err=True)
    if hosts:
        raise typer.Exit(check_hosts.run(inventory, definition))
