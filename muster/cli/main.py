"""The program `muster`: a table of its commands, each imported only when it is used."""

import importlib
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup

# Command -> module:function of this package. Importing all of them would take seconds, and
# `muster check` is run before each play.
COMMANDS = {
    "cache": "muster.cli.cache:show",
    "check": "muster.cli.check:check",
    "nodes": "muster.cli.nodes:nodes",
    "render": "muster.cli.render:render",
    "schema": "muster.cli.schema:schema",
    "secrets": "muster.cli.secrets:make",
    "ssh-config": "muster.cli.ssh_config:ssh_config",
    "timeline": "muster.cli.nodes:timeline",
    "why": "muster.cli.nodes:why",
}

PLUGINS = "muster.commands"
"""Group of entry points by which other packages add commands; each is a Typer."""


def _commands() -> dict[str, Any]:
    """Return the commands of other packages: command -> entry point."""
    return {point.name: point for point in entry_points(group=PLUGINS)}


class _Commands(TyperGroup):
    """Commands looked up in the table, then among the entry points."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the signature is Typer's)
        return sorted(COMMANDS.keys() | _commands().keys())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name].partition(":")
            target = typer.Typer(add_completion=False)
            target.command(cmd_name)(getattr(importlib.import_module(module), name))
        elif point := _commands().get(cmd_name):
            target = point.load()
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


@app.callback()
def _muster() -> None:
    """Commands come from the table and from entry points."""


def main() -> None:
    """Entry point of the program."""
    app()
