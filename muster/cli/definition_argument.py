"""The argument CLUSTER of the commands, and the definition that it names."""

from pathlib import Path

import typer

from muster.definition import Definition, DefinitionError, load

INVENTORIES = Path("inventories")
_WRONG_DEFINITION = 2


def inventory_of(cluster: str) -> Path:
    """The folder of a cluster, given by its name below inventories/ or by a path.

    Ends the program with code 2 if there is none.
    """
    for folder in (INVENTORIES / cluster, Path(cluster)):
        if _is_folder(folder):
            return folder
    known = sorted(entry.name for entry in INVENTORIES.glob("*") if _is_folder(entry))
    remedy = f"there are {', '.join(known)}" if known else "run it where inventories/ is"
    typer.echo(f"{INVENTORIES / cluster}: no such folder; {remedy}", err=True)
    raise typer.Exit(_WRONG_DEFINITION)


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder; not one in a folder that can't be read, nor one too long."""
    try:
        return path.is_dir()
    except OSError:
        return False


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
