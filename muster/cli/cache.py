"""`muster cache CLUSTER`: what the compute nodes cache of shared folders, and whether they do.

The program muster-cache of the role fscache reports on each node; this is the table of all reports.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from muster.cli.definition_argument import definition_of, inventory_of
from muster.cli.exit_codes import UNREACHED, WRONG
from muster.cli.terminal import show as show_table
from muster.verify.ansible_query import AskError, ask, reports_of
from muster.verify.reports import Fields, has, is_count, is_flag, is_text, many, optional

MIB = 2**20
PROGRAM = "/usr/local/sbin/muster-cache"
"""Of the role fscache."""
DISK: Fields = {"bytes": is_count, "free_bytes": is_count}
FOLDER: Fields = {
    "path": is_text,
    "asked": is_flag,
    "read_bytes": is_count,
    "from_server_bytes": is_count,
}
FIELDS: Fields = {
    "active": is_flag,
    "disk": optional(has(DISK)),
    "folders": many(has(FOLDER)),
    "problem": is_text,
}
COLUMNS = ("node", "disk used", "folder", "cached", "read", "by the server", "spared")


def show(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
) -> None:
    """Show what compute nodes keep of shared folders on their own disks."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    if not any(folder.cached for _, folder in definition.cluster.storage.folders()):
        typer.echo(f"{inventory}: no folder is cached; docs/storage.md says when that pays")
        return
    if definition.cluster.cloud is not None:
        typer.echo(
            "error: nodes in the cloud are not hosts of an inventory; ask one with a job: "
            f"srun --nodelist={definition.cluster.name}-SET-N {PROGRAM}",
            err=True,
        )
        raise typer.Exit(UNREACHED)
    try:
        nodes = definition.hosts.groups["compute"]
        replies = reports_of(ask(inventory, "cache.yml", nodes, "stdout"), PROGRAM, FIELDS)
    except AskError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(UNREACHED) from None
    reports = replies.answers
    show_table(table(reports))
    wrong = [f"{node}: {said['problem']}" for node, said in reports.items() if said["problem"]]
    for sentence in [*replies.unreached, *wrong]:
        typer.echo(sentence, err=True)
    if replies.unreached:
        raise typer.Exit(UNREACHED)
    if wrong:
        raise typer.Exit(WRONG)


def table(reports: Mapping[str, Any]) -> Table:
    """Return a line for each folder of each node."""
    grid = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for node, report in reports.items():
        space = report["disk"]
        used = "none"
        if space:
            used = f"{(space['bytes'] - space['free_bytes']) // MIB} of {space['bytes'] // MIB} MiB"
        for folder in report["folders"]:
            cached = "yes" if folder["asked"] and report["active"] else "no"
            read, asked = folder["read_bytes"], folder["from_server_bytes"]
            spared = f"{max(0, 100 - 100 * asked // read)} %" if read else "-"
            amounts = (f"{read // MIB} MiB", f"{asked // MIB} MiB", spared)
            grid.add_row(node, used, folder["path"], cached, *amounts)
    return grid
