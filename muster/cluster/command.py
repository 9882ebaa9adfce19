"""`muster check` and `muster schema`."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

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


def check(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    hosts: Annotated[
        bool,
        typer.Option("--hosts", help="Also compare the definition with the machines themselves."),
    ] = False,
) -> None:
    """Say all that is wrong with a definition; exit code 2 if anything is."""
    # Only here: pydantic takes a tenth of a second, which other commands need not wait for.
    from muster.cluster import DefinitionError, load  # noqa: PLC0415

    inventory = inventory_of(cluster)
    try:
        definition = load(inventory)
    except DefinitionError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(_WRONG_DEFINITION) from None
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
    from muster.cluster import reference  # noqa: PLC0415 (see check)

    if not write:
        typer.echo(reference.schema_text(), nl=False)
        return
    folder = Path(__file__).resolve().parents[2] / "docs" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    for file in reference.write(folder):
        typer.echo(f"wrote {file}")
