"""`muster nodes`, `muster why` and `muster timeline`: what the autoscaler shows people."""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from muster.autoscaler.report.event_log import EVENTS
from muster.autoscaler.report.status_file import STATUS, Status, StatusError, read

WRONG = 2
STALE = 1

StatusPath = Annotated[Path, typer.Option("--status", help="The daemon's status file.")]


def nodes(status: StatusPath = STATUS) -> None:
    """Show the nodes in the cloud that are not simply off, stage by stage.

    Exit code 2 if there is nothing to show, 1 if the daemon has not written for a minute.
    """
    from rich.console import Console  # noqa: PLC0415 (`muster --help` need not wait for it)

    from muster.cli.nodes_table import table  # noqa: PLC0415

    current = _read(status)
    now = _moment(current)
    # Wide in a pipe: a table that is cut may lack what somebody searches for.
    console = Console(width=None if sys.stdout.isatty() else 250, highlight=False)
    console.print(table(current, now))
    _end(current)


def why(
    what: Annotated[str, typer.Argument(metavar="JOB|NODE", help="A job's number or a node.")],
    status: StatusPath = STATUS,
) -> None:
    """Say in one sentence why a job waits, or what state a node is in and why.

    Exit code 2 if there is no such job or node, 1 if the daemon has not written for a minute.
    """
    from muster.autoscaler.report.why import why_job, why_node  # noqa: PLC0415
    from muster.autoscaler.slurm.slurmctld import Slurm, SlurmError  # noqa: PLC0415

    current = _read(status)
    now = _moment(current)
    if what[:1].isdecimal():
        try:
            slurm = Slurm()
            answer = why_job(current, what, slurm.queue(), slurm.partitions(), now)
        except SlurmError as error:
            raise _stop(str(error)) from error
        unknown = f"job {what} is not in the queue; `sacct --jobs={what}` says how it ended"
    else:
        answer = why_node(current, what, now)
        cluster = current.cluster
        unknown = f"no node of {cluster} in the cloud is called {what}; `sinfo` has them all"
    if answer is None:
        raise _stop(unknown)
    typer.echo(answer)
    _end(current)


def timeline(
    output: Annotated[Path, typer.Argument(metavar="OUT.svg", help="The picture to write.")],
    since: Annotated[
        str,
        typer.Option(help="From when on: 90m, 2h or 3d ago, or a time: 2026-05-04T12:00."),
    ] = "2h",
    log: Annotated[Path, typer.Option(help="The daemon's event log.")] = EVENTS,
) -> None:
    """Draw what happened to the nodes: a row for each, its stages over time, the jobs above."""
    from muster.autoscaler.report.history import HistoryError, history, moment, read_log  # noqa: PLC0415
    from muster.autoscaler.report.timeline import draw  # noqa: PLC0415

    now = time.time()
    try:
        begin = moment(since, now)
        past = history(read_log(log), begin, now)
    except HistoryError as error:
        raise _stop(str(error)) from error
    try:
        output.write_text(draw(past), encoding="utf-8")
    except OSError as error:
        raise _stop(f"{output} can't be written: {error}; name another place") from error
    typer.echo(f"wrote {output}: {len(past.nodes)} nodes, {len(past.jobs)} jobs")


def _read(path: Path) -> Status:
    try:
        return read(path)
    except StatusError as error:
        raise _stop(str(error)) from error


def _moment(status: Status) -> float:
    """The time for which the status holds: now, or when the daemon stopped."""
    now = time.time()
    return status.written if status.stale(now) else now


def _end(status: Status) -> None:
    """End the program with a warning if what was shown is old."""
    if status.stale(time.time()):
        at = datetime.fromtimestamp(status.written).astimezone().isoformat(" ", "seconds")
        typer.echo(
            f"warning: this is from {at}: the daemon has stopped or hangs; look at "
            "`systemctl status muster-autoscaler`",
            err=True,
        )
        raise typer.Exit(STALE)


def _stop(message: str) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(WRONG)
