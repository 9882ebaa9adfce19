"""`muster cloud`."""

import typer

from muster.clouddemo.cli import demo
from muster.fakecloud.cli import fake

app = typer.Typer(help="Google Cloud, or what stands for it.", no_args_is_help=True)
app.command()(demo)
app.command()(fake)
