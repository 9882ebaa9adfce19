"""The training table as a picture: seconds, and efficiency, over the number of nodes; SVG, pure."""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from .table import Row

WIDTH, HEIGHT = 380, 300
"""Of a panel, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 34, 40
LEGEND = 28
OURS, ORIGINAL, MEASURED_R = "#1f6feb", "#d1711c", 3.5

STYLE = """
text { font: 11px system-ui, "Helvetica Neue", Arial, sans-serif; fill: #24292f }
.title { font-size: 13px; font-weight: 600 }
.tick { text-anchor: middle }
.side { text-anchor: end }
.page { fill: #ffffff }
.grid { stroke: #e3e6ea }
.line { fill: none; stroke-width: 2 }
.model { stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.page { fill: #0d1117 }
.grid { stroke: #30363d }
}
"""

Points = list[tuple[int, float]]


def draw(rows: Sequence[Row], original: Mapping[int, float], note: str) -> str:
    """Return the picture as text.

    Args:
        rows: Of the table, by the number of nodes; dashed from the last measured one on.
        original: Nodes -> seconds of the other table.
        note: Where and when it was measured.

    """
    width, height = 2 * WIDTH, HEIGHT + LEGEND
    first = original[1]
    ours = [(row.nodes, row.seconds) for row in rows]
    efficiency = [(row.nodes, row.efficiency) for row in rows]
    others = sorted(original.items())
    measured = sum(row.measured is not None for row in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(f'Training on 1 to {max(row.nodes for row in rows)} nodes')}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        *panel(0, "Seconds from the first to the last step", ours, others, measured),
        *panel(
            WIDTH,
            "Efficiency: T1 / (n Tn)",
            efficiency,
            [(nodes, first / (nodes * seconds)) for nodes, seconds in others],
            measured,
        ),
        *legend(note),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def panel(left: int, title: str, ours: Points, others: Points, measured: int) -> list[str]:
    """Return a chart with both curves; `measured` points of ours are measured, the rest a model."""
    most = max(nodes for nodes, _ in ours + others)
    top = nice(max(value for _, value in ours + others))

    def x(nodes: float) -> float:
        return left + LEFT + (nodes - 1) / max(1, most - 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    def curve(points: Points, colour: str, more: str = "") -> str:
        path = " ".join(f"{x(nodes):.1f},{y(value):.1f}" for nodes, value in points)
        return f'<polyline class="line{more}" stroke="{colour}" points="{path}"/>'

    lines = [f'<text class="title" x="{left + LEFT}" y="20">{escape(title)}</text>']
    for part in range(5):
        value = top * part / 4
        lines.append(
            f'<line class="grid" x1="{x(1):.1f}" x2="{x(most):.1f}" '
            f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text class="side" x="{x(1) - 6:.1f}" y="{y(value) + 4:.1f}">{value:g}</text>'
        )
    lines += [
        f'<text class="tick" x="{x(nodes):.1f}" y="{HEIGHT - BOTTOM + 16}">{nodes}</text>'
        for nodes in sorted({nodes for nodes, _ in ours + others})
    ]
    lines.append(
        f'<text class="tick" x="{x((1 + most) / 2):.1f}" y="{HEIGHT - BOTTOM + 32}">nodes</text>'
    )
    lines.append(curve(others, ORIGINAL))
    if measured > 1:
        lines.append(curve(ours[:measured], OURS))
    if len(ours) > measured:
        lines.append(curve(ours[max(0, measured - 1) :], OURS, " model"))
    for colour, points in ((ORIGINAL, others), (OURS, ours[:measured])):
        lines += [
            f'<circle cx="{x(nodes):.1f}" cy="{y(value):.1f}" r="{MEASURED_R}" fill="{colour}">'
            f"<title>{nodes} nodes: {value:.4g}</title></circle>"
            for nodes, value in points
        ]
    return lines


def legend(note: str) -> list[str]:
    """Return what the lines are, below both charts."""
    lines, left, y = [], LEFT, HEIGHT + LEGEND - 12
    for name, colour, more in (
        ("measured", OURS, ""),
        ("model", OURS, " model"),
        ("original", ORIGINAL, ""),
    ):
        lines.append(
            f'<line class="line{more}" stroke="{colour}" x1="{left}" x2="{left + 24}" '
            f'y1="{y - 4}" y2="{y - 4}"/><text x="{left + 30}" y="{y}">{name}</text>'
        )
        left += 100
    lines.append(f'<text x="{left}" y="{y}">{escape(note)}</text>')
    return lines


def nice(value: float) -> float:
    """Return a round number that is not below a value, for the end of an axis."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
