"""`muster cloud`: commands about Google Cloud."""

import typer

from muster.cli.exit_codes import EXIT_CODES, epilog
from muster.cli.record import record

app = typer.Typer(help="Google Cloud, or its stand-in.", no_args_is_help=True, add_completion=False)
# The recorded command has options of its own.
app.command(
    context_settings={"allow_interspersed_args": False}, epilog=epilog(EXIT_CODES["cloud record"])
)(record)


@app.callback()
def _cloud() -> None:
    """Make it a group also while it has one command."""
