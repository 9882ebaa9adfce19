"""`muster cloud fake`: Google Cloud on this machine until it is interrupted."""

import logging
import shlex
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from muster_sandbox.containers.podman import MachineError, check_machine
from muster_sandbox.fakecloud.cloud import Settings
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.identity import OWNER_TOKEN
from muster_sandbox.fakecloud.machines import with_machines
from muster_sandbox.fakecloud.server import PortError, Server


def fake(
    port: Annotated[int, typer.Option(help="Port of the APIs on 127.0.0.1.")] = 8085,
    metadata_port: Annotated[
        int, typer.Option(help="Port of the metadata server on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    machines: Annotated[
        bool,
        typer.Option(
            "--machines",
            help="Instances boot, as containers (needs root and podman); the metadata server is at "
            "its usual address. Containers, images and disks are removed at the end.",
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of the state, which then survives the process.", file_okay=False),
    ] = None,
    project: Annotated[str, typer.Option(help="The project's id.")] = Settings().project,
) -> None:
    """Serve Google Cloud's APIs on this machine; instances are records, or containers.

    Prints the variables that make Pulumi and gcloud use it, ready to be pasted into another shell,
    and serves until it is interrupted. Google's Python clients get its address from their program.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if machines and state:
        typer.echo("machines end with fakecloud: leave out --state or --machines", err=True)
        raise typer.Exit(2)
    with ExitStack() as stack:
        try:
            if machines:
                server = _with_machines(stack, project, port)
            else:
                settings = Settings(project=project)
                server = Server(settings, state, port=port, metadata_port=metadata_port)
        except PortError as error:
            typer.echo(f"fakecloud {error}; give another with --port or --metadata-port", err=True)
            raise typer.Exit(1) from error
        except MachineError as error:
            typer.echo(f"fakecloud: {error}", err=True)
            raise typer.Exit(1) from error
        folder = state or Path(stack.enter_context(TemporaryDirectory(prefix="fakecloud-")))
        token_file = folder.absolute() / "access-token"
        token_file.write_text(f"{OWNER_TOKEN}\n", encoding="utf-8")
        for name, value in environment(server.url, project, token_file).items():
            typer.echo(f"export {name}={shlex.quote(value)}")
        typer.echo(f"# fakecloud is at {server.url}, its metadata server at {server.metadata_url}.")
        server.run()


def _with_machines(stack: ExitStack, project: str, port: int) -> Server:
    """A server whose instances are containers; `stack` removes them at the end."""
    check_machine()
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="muster-cloud-")))
    settings = Settings(project=project)
    return stack.enter_context(with_machines("muster-cloud", folder, settings, port=port))
