"""The program `muster`: a table of its commands, each imported only when it is used."""

import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from muster.cli.exit_codes import EXIT_CODES, FAILED, epilog

# Command -> module:function of this package. Importing all of them would take seconds.
# `cloud`, `data`, `models` and `software` are groups of commands; to `cloud` another package adds
# its own.
COMMANDS = {
    "cache": "muster.cli.cache:show",
    "check": "muster.cli.check:check",
    "cloud": "muster.cli.cloud:app",
    "data": "muster.cli.models:data",
    "job": "muster.cli.job:job",
    "models": "muster.cli.models:models",
    "nodes": "muster.cli.nodes:nodes",
    "packages": "muster.cli.packages:show",
    "render": "muster.cli.render:render",
    "schema": "muster.cli.schema:schema",
    "secrets": "muster.cli.secrets:make",
    "software": "muster.cli.software:app",
    "ssh-config": "muster.cli.ssh_config:ssh_config",
    "timeline": "muster.cli.nodes:timeline",
    "updates": "muster.cli.updates:show",
    "why": "muster.cli.nodes:why",
}

PLUGINS = "muster.commands"
"""Group of entry points by which other packages add commands; each is a Typer.

One with the name of a group of this package adds its commands to that group.
"""


def _commands() -> dict[str, EntryPoint]:
    """Return the commands of other packages: command -> entry point."""
    return {point.name: point for point in entry_points(group=PLUGINS)}


def _why_broken(point: EntryPoint, error: Exception) -> str:
    package = point.dist.name if point.dist else PLUGINS
    return f"the package {package} can't be loaded: {error}; install it again"


def _broken(point: EntryPoint, error: Exception) -> TyperCommand:
    """Return a command that says why the package that should have it does not."""

    def fail() -> None:
        typer.echo(_why_broken(point, error), err=True)
        raise typer.Exit(FAILED)

    return TyperCommand(point.name, callback=fail, help=f"Can't be loaded: {error}")


def _own(name: str) -> typer.Typer:
    """Return a command of the table, as the only one of a Typer, or a group."""
    module, _, attribute = COMMANDS[name].partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if isinstance(target, typer.Typer):
        return target
    alone = typer.Typer(add_completion=False)
    alone.command(name, epilog=epilog(EXIT_CODES[name]))(target)
    return alone


def _joined(group: typer.Typer, point: EntryPoint) -> typer.Typer:
    """Return a group with the commands of another package; its help says if they are missing."""
    joined = typer.Typer(help=group.info.help, no_args_is_help=True, add_completion=False)
    joined.registered_callback = group.registered_callback
    joined.registered_commands = list(group.registered_commands)
    try:
        joined.registered_commands += point.load().registered_commands
    except (ImportError, AttributeError) as error:
        joined.info.epilog = f"Commands are missing: {_why_broken(point, error)}"
    return joined


class _Commands(TyperGroup):
    """Commands looked up in the table, then among the entry points."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the signature is Typer's)
        return sorted(COMMANDS.keys() | _commands().keys())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in COMMANDS:
            target = _own(cmd_name)
            if cmd_name not in EXIT_CODES and (point := _commands().get(cmd_name)):
                target = _joined(target, point)
        elif point := _commands().get(cmd_name):
            try:
                target = point.load()
            except (ImportError, AttributeError) as error:
                return _broken(point, error)
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
