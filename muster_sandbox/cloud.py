"""`muster cloud demo` and `muster cloud fake`."""

import typer

from muster_sandbox.cloud_demo.cli import demo
from muster_sandbox.exit_codes import EXIT_CODES
from muster_sandbox.fakecloud.cli import fake

app = typer.Typer(help="Google Cloud, or its stand-in.", no_args_is_help=True)
app.command(epilog=EXIT_CODES)(demo)
app.command(epilog=EXIT_CODES)(fake)
