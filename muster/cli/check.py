"""`muster check` and `muster schema`."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from muster.cluster import Definition, DefinitionError, load, reference, remarks

INVENTORIES = Path("inventories")
_WRONG_DEFINITION = 2


def inventory_of(cluster: str) -> Path:
    """The folder of a cluster, given by its name below inventories/ or by a path.

    Ends the program with code 2 if there is none.
    """
    for folder in (INVENTORIES / cluster, Path(cluster)):
        if folder.is_dir():
            return folder
    known = sorted(entry.name for entry in INVENTORIES.glob("*") if entry.is_dir())
    remedy = f"there are {', '.join(known)}" if known else "run it where inventories/ is"
    typer.echo(f"{INVENTORIES / cluster}: no such folder; {remedy}", err=True)
    raise typer.Exit(_WRONG_DEFINITION)


def definition_of(inventory: Path) -> Definition:
    """The definition in `inventory`.

    Says what is wrong with it and ends the program with code 2 if anything is.
    """
    try:
        return load(inventory)
    except DefinitionError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(_WRONG_DEFINITION) from None


def check(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    hosts: Annotated[
        bool,
        typer.Option("--hosts", help="Also compare the definition with the machines themselves."),
    ] = False,
) -> None:
    """Say all that is wrong with a definition; exit code 2 if anything is."""
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
    for warning in remarks.warnings(definition):
        typer.echo(f"warning: {warning}", err=True)
    if hosts:
        # Its own module: it needs Ansible, which takes seconds to import.
        run = importlib.import_module("muster.hosts_check").run
        raise typer.Exit(run(inventory, definition))


def schema(
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Write the schema and the reference page into docs/reference."
        ),
    ] = False,
) -> None:
    """Print the JSON schema of cluster.yml, for editors."""
    if not write:
        typer.echo(reference.schema_text(), nl=False)
        return
    folder = Path(__file__).resolve().parents[2] / "docs" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    for file in reference.write(folder):
        typer.echo(f"wrote {file}")
