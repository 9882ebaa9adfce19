"""`muster cloud fake`: Google Cloud on this machine until it is interrupted."""

import logging
import shlex
from pathlib import Path
from typing import Annotated

import typer

from muster.fakecloud.cloud import Settings
from muster.fakecloud.environment import environment
from muster.fakecloud.identity import OWNER_TOKEN
from muster.fakecloud.server import PortError, Server

app = typer.Typer(help="Google Cloud, or what stands for it.", no_args_is_help=True)


@app.callback()
def _cloud() -> None:
    """Keeps `fake` a sub-command while it is the only one."""


@app.command()
def fake(
    port: Annotated[int, typer.Option(help="Port of the APIs on 127.0.0.1.")] = 8085,
    metadata_port: Annotated[
        int, typer.Option(help="Port of the metadata server on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of the state, which then outlives the process.", file_okay=False),
    ] = None,
    project: Annotated[str, typer.Option(help="The project's id.")] = Settings().project,
) -> None:
    """Serve Google Cloud's APIs on this machine, with instances that are records only.

    Prints the variables that point Pulumi, gcloud and Google's Python clients at it, ready for a
    shell: eval what it prints, or paste it.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        server = Server(Settings(project=project), state, port=port, metadata_port=metadata_port)
    except PortError as error:
        typer.echo(f"fakecloud {error}; give another with --port or --metadata-port", err=True)
        raise typer.Exit(1) from error
    token_file = None
    if state:
        token_file = state.absolute() / "access-token"
        token_file.write_text(f"{OWNER_TOKEN}\n", encoding="utf-8")
    for name, value in environment(server.url, project, token_file).items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    typer.echo(f"# fakecloud is at {server.url}, its metadata server at {server.metadata_url}.")
    server.run()
