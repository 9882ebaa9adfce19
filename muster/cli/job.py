"""`muster job`: the program muster-job of the role `jobs`, where Muster is installed."""

from typing import Annotated

import typer

from muster.cli.host_programs import become


def job(
    number: Annotated[
        str, typer.Argument(metavar="JOB", help="Its number; of an array 12 or 12_3.")
    ],
) -> None:
    """Say why a job waits, or how it ended, what it used and what to ask for next time."""
    become(
        "muster-job",
        ["--", number],
        f"log in to a login node of the cluster and type muster-job {number} there",
    )
