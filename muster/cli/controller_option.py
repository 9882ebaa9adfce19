"""The options with which commands of the controller are typed on another machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.autoscaler.report.status_file import STATUS
from muster.autoscaler.settings import SETTINGS

if TYPE_CHECKING:
    from muster.cli.on_controller import Controller

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="On another machine than the controller: folder below inventories/, or a path. "
        "[default: the only one in the cloud]",
        show_default=False,
    ),
]
UserOption = Annotated[
    str | None, typer.Option("--user", help="Your login on the controller.", show_default=False)
]


def elsewhere(cluster: str | None, user: str | None, file: Path | None) -> "Controller | None":
    """Return the controller that a command has to run on; None: it runs here.

    The arguments are those of `controller_of`, and so is how it may end the program.
    """
    if is_here(cluster, file):
        return None
    # Not on a controller: the definition's schema takes longer to import than the command runs.
    from muster.cli.on_controller import controller_of  # noqa: PLC0415

    return controller_of(cluster, user, file)


def is_here(cluster: str | None, file: Path | None) -> bool:
    """Whether what a command reads is on this machine: a file was typed, or an autoscaler runs."""
    return cluster is None and (file is not None or SETTINGS.exists() or STATUS.exists())
