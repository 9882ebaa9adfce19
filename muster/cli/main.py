"""The program `muster`: a table of its commands, each imported only when it is used."""

import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from muster.cli.exit_codes import EXIT_CODES, FAILED, epilog

# Command -> module:function of this package. Importing all of them would take seconds.
COMMANDS = {
    "cache": "muster.cli.cache:show",
    "check": "muster.cli.check:check",
    "nodes": "muster.cli.nodes:nodes",
    "render": "muster.cli.render:render",
    "schema": "muster.cli.schema:schema",
    "secrets": "muster.cli.secrets:make",
    "ssh-config": "muster.cli.ssh_config:ssh_config",
    "timeline": "muster.cli.nodes:timeline",
    "updates": "muster.cli.updates:show",
    "why": "muster.cli.nodes:why",
}

PLUGINS = "muster.commands"
"""Group of entry points by which other packages add commands; each is a Typer."""


def _commands() -> dict[str, EntryPoint]:
    """Return the commands of other packages: command -> entry point."""
    return {point.name: point for point in entry_points(group=PLUGINS)}


def _broken(name: str, package: str, error: Exception) -> TyperCommand:
    """Return a command that says why the package that should have it does not."""

    def fail() -> None:
        typer.echo(f"the package {package} can't be loaded: {error}; install it again", err=True)
        raise typer.Exit(FAILED)

    return TyperCommand(name, callback=fail, help=f"Can't be loaded: {error}")


class _Commands(TyperGroup):
    """Commands looked up in the table, then among the entry points."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the signature is Typer's)
        return sorted(COMMANDS.keys() | _commands().keys())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name].partition(":")
            target = typer.Typer(add_completion=False)
            shown = epilog(EXIT_CODES[cmd_name])
            target.command(cmd_name, epilog=shown)(getattr(importlib.import_module(module), name))
        elif point := _commands().get(cmd_name):
            try:
                target = point.load()
            except (ImportError, AttributeError) as error:
                return _broken(cmd_name, point.dist.name if point.dist else PLUGINS, error)
        else:
            return None
        command = typer.main.get_command(target)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=_Commands,
    help="Muster: SLURM clusters from one definition.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from muster.cli.version import version  # noqa: PLC0415 (only for this option)

        typer.echo(version())
        raise typer.Exit


@app.callback()
def _muster(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Commands come from the table and from entry points."""


def main() -> None:
    """Entry point of the program."""
    app()
