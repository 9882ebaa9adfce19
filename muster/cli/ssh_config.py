"""`muster ssh-config`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.definition_argument import definition_of, inventory_of
from muster.cli.exit_codes import WRONG
from muster.gcp import pulumi_stack, ssh


def ssh_config(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    user: Annotated[str | None, typer.Option(help="Your login on the cluster.")] = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Write it into ~/.ssh/config.d, where ~/.ssh/config reads it, and the VMs' host "
            "keys beside it.",
        ),
    ] = False,
) -> None:
    """Print an ssh configuration for login nodes and controller of a cluster in the cloud."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    if definition.cluster.cloud is None:
        raise _stop(f"{inventory} is not in the cloud: its hosts.yml says where its hosts are")
    if user is not None and user not in definition.cluster.users.people:
        raise _stop(f"nobody in {inventory} has the login {user}; add the person to cluster.yml")
    name = definition.cluster.name
    try:
        made = pulumi_stack.stack_of(name, pulumi_stack.outputs(name))
    except pulumi_stack.StackError as error:
        raise _stop(str(error)) from error
    text = ssh.config(made, user)
    if not write:
        typer.echo(text, nl=False)
        return
    home = Path.home() / ".ssh"
    file = home / "config.d" / f"muster-{name}"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {file}; now: ssh {name}")
    # Only here: it needs Google's libraries, which take a second to import.
    from muster.gcp import host_keys  # noqa: PLC0415

    for host, why in host_keys.write(made).items():
        typer.echo(f"{host}: the first connection learns its host key ({why})")
    if not _is_included(home / "config"):
        typer.echo("Put this line at the top of ~/.ssh/config: Include config.d/*")


def _is_included(file: Path) -> bool:
    """Whether ssh reads the files of config.d."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return bool(re.search(r"^\s*Include\s.*\bconfig\.d/\*", text, re.MULTILINE | re.IGNORECASE))


def _stop(message: str) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(WRONG)
