"""`muster nodes`, `muster why` and `muster timeline`: what the autoscaler shows people.

They read files of the controller, and ask slurmctld. On another machine they run there, by ssh.
"""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from muster.autoscaler.report.event_log import EVENTS
from muster.autoscaler.report.status_file import STATUS, Status, StatusError, read
from muster.catalog.printable import one_line
from muster.cli.controller_option import ClusterOption, UserOption, elsewhere, is_here
from muster.cli.exit_codes import STALE, UNREACHED, WRONG
from muster.cli.host_programs import said_by

STANDARD_OUTPUT = Path("-")
StatusPath = Annotated[
    Path | None,
    typer.Option(
        "--status", help=f"A daemon's status file here. [default: {STATUS}]", show_default=False
    ),
]


def nodes(
    status: StatusPath = None, cluster: ClusterOption = None, user: UserOption = None
) -> None:
    """Show the nodes in the cloud that are not simply off, stage by stage.

    It runs on the controller: on another machine, it logs in there to do so.
    """
    if controller := elsewhere(cluster, user, status):
        controller.run("muster", "nodes")
    # `muster --help` need not wait for it.
    from muster.cli.nodes_table import table  # noqa: PLC0415
    from muster.cli.terminal import show  # noqa: PLC0415

    current = _read(status or STATUS)
    now = _moment(current)
    show(table(current, now))
    _end(current)


def why(
    what: Annotated[str, typer.Argument(metavar="JOB|NODE", help="A job's number or a node.")],
    status: StatusPath = None,
    cluster: ClusterOption = None,
    user: UserOption = None,
) -> None:
    """Say why a job waits, or in one sentence what state a node is in and why.

    Of a job that is pending it also says what muster-job does: limits, priority, and what to do.
    On own machines it says of any job what muster-job does, and nothing of nodes.

    It runs on the controller: on another machine, it logs in there to do so.
    """
    is_job = what[:1].isdecimal()
    if is_job and not is_here(cluster, status):
        from muster.cli import own_machines  # noqa: PLC0415 (as in `elsewhere`)

        if cluster is None:
            own_machines.ask_here(what)
        if own := own_machines.controller_of(cluster, user):
            own.why_job(what)
    if controller := elsewhere(cluster, user, status):
        controller.run("muster", "why", "--", what)
    from muster.autoscaler.report.why import meant, why_job, why_node  # noqa: PLC0415
    from muster.autoscaler.slurm.slurmctld import Slurm, SlurmError  # noqa: PLC0415

    current = _read(status or STATUS)
    now = _moment(current)
    besides = ""
    if is_job:
        try:
            slurm = Slurm()
            queue = slurm.queue()
            answer = why_job(current, what, queue, slurm.partitions(), now)
        except SlurmError as error:
            raise _stop(str(error)) from error
        if any(job.state == "PENDING" for job in meant(what, queue)):
            besides = said_by("muster-job", ["--", what.partition("_[")[0]])
        unknown = f"job {what} is not in the queue; `sacct --jobs={what}` says how it ended"
    else:
        answer = why_node(current, what, now)
        cluster = current.cluster
        unknown = f"no node of {cluster} in the cloud is called {what}; `sinfo` has them all"
    if answer is None:
        raise _stop(unknown)
    # It has reasons, and errors of Google: words of others.
    said = [*answer.splitlines(), *besides.splitlines()]
    typer.echo("\n".join(one_line(line) for line in said))
    _end(current)


def timeline(
    output: Annotated[
        Path, typer.Argument(metavar="OUT.svg", help="The picture to write; -: standard output.")
    ],
    since: Annotated[
        str,
        typer.Option(help="From when on: 90m, 2h or 3d ago, or a time: 2026-05-04T12:00."),
    ] = "2h",
    log: Annotated[
        Path | None,
        typer.Option(help=f"A daemon's event log here. [default: {EVENTS}]", show_default=False),
    ] = None,
    cluster: ClusterOption = None,
    user: UserOption = None,
) -> None:
    """Draw what happened to the nodes: a row for each, its stages over time, the jobs above.

    It runs on the controller, as root: on another machine, it logs in there to do so.
    """
    from muster.autoscaler.report.history import HistoryError, history, moment, read_log  # noqa: PLC0415
    from muster.autoscaler.report.timeline import draw  # noqa: PLC0415

    now = time.time()
    try:
        begin = moment(since, now)
        if controller := elsewhere(cluster, user, log):
            # A duration: the controller has another time zone, and maybe another clock.
            ago = f"{max(0, now - begin):.0f}s"
            picture, summary = controller.fetch("muster", "timeline", "--since", ago, "-")
            if not picture.startswith(b"<svg"):
                raise _stop(
                    f"{controller.stack.controller} can't send a picture: its Muster is older than "
                    "this one; `pulumi up` brings this one there",
                    UNREACHED,
                )
        else:
            past = history(read_log(log or EVENTS), begin, now)
            picture = draw(past).encode()
            summary = f"{len(past.nodes)} nodes, {len(past.jobs)} jobs"
    except HistoryError as error:
        raise _stop(str(error)) from error
    if output == STANDARD_OUTPUT:
        sys.stdout.buffer.write(picture)
        typer.echo(summary.strip(), err=True)
        return
    try:
        output.write_bytes(picture)
    except OSError as error:
        raise _stop(f"{output} can't be written: {error}; name another place") from error
    typer.echo(f"wrote {output}: {summary.strip()}")


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


def _stop(message: str, code: int = WRONG) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)
