"""The program `muster`: a table of its commands, each imported only when it is used."""

import importlib
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

# Command -> module:function, or module:Typer for one with sub-commands. Importing all of them
# would take seconds, and `muster check` is run before each play.
COMMANDS = {
    "cache": "muster.cache:show",
    "check": "muster.cluster.command:check",
    "cloud": "muster.cloud.cli:app",
    "demo": "muster.demo.cli:app",
    "nodes": "muster.autoscaler.commands:nodes",
    "render": "muster.render:render",
    "schema": "muster.cluster.command:schema",
    "secrets": "muster.secrets_cli:make",
    "ssh-config": "muster.access.command:ssh_config",
    "timeline": "muster.autoscaler.commands:timeline",
    "why": "muster.autoscaler.commands:why",
}


def _is_here(place: str) -> bool:
    """Whether a command came along: the bundle of a cloud's VM has not all of them."""
    try:
        return find_spec(place.partition(":")[0]) is not None
    except ModuleNotFoundError:
        return False


class _Commands(TyperGroup):
    """Commands looked up in the table."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the signature is Typer's)
        return sorted(name for name, place in COMMANDS.items() if _is_here(place))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS or not _is_here(COMMANDS[cmd_name]):
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        target = getattr(importlib.import_module(module), name)
        if not isinstance(target, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(target)
            target = single
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
    """Commands come from the table alone."""


def main() -> None:
    """Entry point of the program."""
    app()


if __name__ == "__main__":
    main()
