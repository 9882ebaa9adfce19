"""`muster render`: SLURM's configuration files as the play would write them."""

from pathlib import Path
from typing import Annotated

import typer

from muster.cli.definition_argument import definition_of, inventory_of
from muster.render.slurm import SlurmFiles
from muster.render.slurm import render as rendered

_FAILED = 1


def render(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write the files to; without it they are printed."),
    ] = None,
) -> None:
    """Show SLURM's files; secrets are not among them. Exit code 2 if the definition is wrong.

    1: the files could not be written.
    """
    files = by_name(rendered(definition_of(inventory_of(cluster))))
    if output is None:
        for name, content in files.items():
            typer.echo(f"#### {name}\n{content}")
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (output / name).write_text(content)
            typer.echo(f"wrote {output / name}")
    except OSError as error:
        said = (error.strerror or "can't be written").lower()
        place = error.filename or output
        typer.echo(f"error: {place}: {said}; name a folder that you can write to", err=True)
        raise typer.Exit(_FAILED) from error


def by_name(files: SlurmFiles) -> dict[str, str]:
    """Return the files that the cluster has by name: no gres.conf without GPUs, for example."""
    contents = {
        "slurm.conf": files.slurm_conf,
        "gres.conf": files.gres_conf,
        "cgroup.conf": files.cgroup_conf,
        "job_container.conf": files.job_container_conf,
        "slurmdbd.conf": files.slurmdbd_conf,
        "job_submit.lua": files.job_submit_lua,
    }
    return {name: content for name, content in contents.items() if content}
