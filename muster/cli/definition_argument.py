"""The argument CLUSTER of the commands, and the definition that it names."""

from pathlib import Path

import typer

from muster.cli.exit_codes import WRONG
from muster.definition import Definition, DefinitionError, load
from muster.definition.sources import CLUSTER_FILE, HOSTS_FILE

INVENTORIES = Path("inventories")


def inventory_of(cluster: str) -> Path:
    """The folder of a cluster, given by its name below inventories/ or by a path.

    Ends the program with code 2 if there is none.
    """
    path = Path(cluster)
    # Below inventories/ the paths "." and "../lab" would be something else than they say.
    named = [INVENTORIES / path] if path.parts and ".." not in path.parts else []
    folder = next((one for one in [*named, path] if _is_folder(one)), None)
    if not cluster.strip():
        problem = "the cluster's name is empty"
    elif folder is None:
        problem = f"{INVENTORIES / path}: no such folder"
    elif not any((folder / file).exists() for file in (CLUSTER_FILE, HOSTS_FILE)):
        problem = f"{folder}: no cluster is here: it would have {CLUSTER_FILE}"
    else:
        return folder
    known = sorted(entry.name for entry in INVENTORIES.glob("*") if _is_folder(entry))
    remedy = f"there are {', '.join(known)}" if known else "run it where inventories/ is"
    typer.echo(f"{problem}; {remedy}", err=True)
    raise typer.Exit(WRONG)


def is_in_cloud(inventory: Path) -> bool:
    """Whether a folder has the definition of a cluster in the cloud, without an error in it."""
    try:
        return load(inventory).cluster.cloud is not None
    except DefinitionError:
        return False


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
        raise typer.Exit(WRONG) from None
