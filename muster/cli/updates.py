"""`muster updates CLUSTER`: what is pending of the packages that unattended upgrades leave alone.

The program muster-updates of the role base reports on each host; this is the table of all reports.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from muster.catalog.hostlists import fold
from muster.cli.definition_argument import definition_of, inventory_of
from muster.cli.exit_codes import UNREACHED
from muster.cli.terminal import show as show_table
from muster.verify.ansible_query import AskError, ask, reports_of
from muster.verify.reports import Fields, has, is_flag, is_number, is_text, many, optional

PROGRAM = "/usr/local/sbin/muster-updates"
"""Of the role base."""
COLUMNS = ("package", "installed", "newest", "archive", "security", "hosts")
UPDATE: Fields = {
    "package": is_text,
    "installed": is_text,
    "version": is_text,
    "archive": is_text,
    "security": is_flag,
}
FIELDS: Fields = {"updates": many(has(UPDATE)), "lists_days": optional(is_number)}
OLD_DAYS = 2
"""Lists of packages older than this are named: what came since is in no report."""


def show(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
) -> None:
    """Show newer versions of the packages that unattended upgrades leave alone, such as SLURM's."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    try:
        hosts = definition.hosts.groups["all"]
        replies = reports_of(ask(inventory, "updates.yml", hosts, "stdout"), PROGRAM, FIELDS)
    except AskError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(UNREACHED) from None
    reports = replies.answers
    if any(report["updates"] for report in reports.values()):
        show_table(table(reports))
    else:
        typer.echo(f"{len(reports)} hosts, no newer version of a package that is kept")
    for sentence in [*replies.unreached, *old_lists(reports)]:
        typer.echo(sentence, err=True)
    if replies.unreached:
        raise typer.Exit(UNREACHED)


def old_lists(reports: Mapping[str, Any]) -> list[str]:
    """Return a sentence for the hosts whose lists of packages are old."""
    days = {host: report["lists_days"] for host, report in reports.items()}
    old = [host for host, age in days.items() if age is None or age > OLD_DAYS]
    if not old:
        return []
    return [
        f"{fold(old)}: no `apt-get update` in the last {OLD_DAYS} days, so there may be more; "
        "run it there"
    ]


def table(reports: Mapping[str, Any]) -> Table:
    """Return a line for each update, with the hosts that wait for it."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host, report in reports.items():
        for row in report["updates"]:
            security = "yes" if row["security"] else "no"
            update = (row["package"], row["installed"], row["version"], row["archive"], security)
            hosts.setdefault(update, []).append(host)
    grid = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for cells, names in sorted(hosts.items()):
        grid.add_row(*cells, fold(names))
    return grid
