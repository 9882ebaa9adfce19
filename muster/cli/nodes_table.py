"""The table of `muster nodes`."""

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from muster.autoscaler.report.lifecycle import IN_SERVICE, POWERING_UP, Stage, View
from muster.autoscaler.report.status_file import Row, Status
from muster.autoscaler.report.why import lasted
from muster.autoscaler.text import in_order
from muster.catalog.prices import prices
from muster.catalog.printable import one_line

_COLUMNS = ("node", "state", "stage", "since", "zone", "type", "$/h", "reason")
_STYLES: Mapping[Stage, str] = (
    dict.fromkeys(IN_SERVICE, "green")
    | dict.fromkeys(POWERING_UP, "yellow")
    | dict.fromkeys(
        (Stage.STUCK, Stage.DOWN, Stage.NOT_RESPONDING, Stage.VERIFYING, Stage.RELEASED), "red"
    )
)


def table(status: Status, now: float) -> Table:
    """Return the nodes that are not simply off; its caption has the rest."""
    shown = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for name in _COLUMNS:
        right = name in ("since", "$/h")
        shown.add_column(
            name, justify="right" if right else "left", no_wrap=name != "reason", overflow="fold"
        )
    total = 0.0
    for name in sorted(status.nodes, key=in_order):
        row = status.nodes[name]
        price = _price(row.view)
        total += price or 0
        shown.add_row(*_cells(name, row, price, now))
    shown.caption = Text(_caption(status, total, now))
    return shown


def _cells(name: str, row: Row, price: float | None, now: float) -> list[Text]:
    view = row.view
    spot = " spot" if view.spot else ""
    cells = (
        name,
        view.state or "-",
        view.stage.value,
        lasted(now - row.since),
        view.zone or "-",
        f"{view.pool.kind}{spot}" or "-",
        f"{price:.3f}" if price is not None else "-",
        one_line(view.reason),
    )
    # As Text: anybody may write reasons, and rich would read [tags] in them.
    style = _STYLES.get(view.stage, "")
    return [Text(cell, style if at == 2 else "") for at, cell in enumerate(cells)]


def _price(view: View) -> float | None:
    """US dollars per hour of a node's VM; None without a VM or a known price."""
    # The prices are those of machine types, without GPUs that are attached.
    if view.gpus or view.stage in (Stage.OFF, Stage.WAITING, Stage.INSERTING):
        return None
    return prices().per_hour(view.machine_type, view.zone, spot=view.spot)


def _caption(status: Status, total: float, now: float) -> str:
    lines = [f"{len(status.nodes)} nodes; {len(status.off)} more are off"]
    if total:
        lines[0] += f"; {total:.2f} $/h for VMs at list prices of {prices().date}"
    read = [
        f"{what} {lasted(now - at)} ago" if at else f"{what} not yet"
        for what, at in (("slurmctld", status.slurm_read), ("the cloud", status.cloud_read))
    ]
    lines.append(f"read: {', '.join(read)}")
    lines += [
        f"{what} can't be {unread.verb} since {lasted(now - unread.since)}: {one_line(unread.why)}"
        for what, unread in status.unread.items()
    ]
    lines += [
        f"no room for {breaker}: {breaker.code}, "
        + ("being tried" if breaker.half_open else f"tried again in {lasted(breaker.until - now)}")
        for breaker in status.breakers
    ]
    return "\n".join(lines)
