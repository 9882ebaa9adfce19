"""The picture of `muster timeline`: one SVG, a row for each node, the jobs above; pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from xml.sax.saxutils import escape

from muster.autoscaler.report.history import History, JobSpan, Span
from muster.autoscaler.report.lifecycle import Stage
from muster.autoscaler.report.why import lasted
from muster.autoscaler.text import in_order
from muster.catalog.printable import one_line

CHART = 800
"""Width of the time axis, in pixels; names are left of it. A page shows the whole unshrunk."""
MARGIN, GAP = 16, 8
LETTER, NAME_LETTER = 6.3, 6.7
"""Width of a letter of 11 pixels: about, and of names, whose letters are all as wide."""
LANES = 40
"""Most rows of jobs."""
LANE = 13
STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 7 * 86400),
)
TICKS = 10

# For people who see red and green alike the colours differ in lightness too.
COLOURS = {
    Stage.WAITING: "#6f7782",
    Stage.INSERTING: "#fff0a8",
    Stage.CREATED: "#f7c55b",
    Stage.BOOTING: "#7fb8e6",
    Stage.STUCK: "#b5179e",
    Stage.IDLE: "#c9e7c6",
    Stage.BUSY: "#2a7f4f",
    Stage.LEAVING: "#7d9a3c",
    Stage.DRAINED: "#9d86c9",
    Stage.DOWN: "#e0555a",
    Stage.NOT_RESPONDING: "#f29a9d",
    Stage.VERIFYING: "#e58a45",
    Stage.RELEASED: "#8f1d22",
    Stage.GOING: "#d3d8de",
    Stage.ORPHAN: "#1d1d1d",
}
JOB, JOB_WAITS, JOB_LOST = "#3d5a98", "url(#waits)", "url(#lost)"

TITLE = "Nodes and the jobs that asked for them"

STYLE = """
text { font: 11px system-ui, "Helvetica Neue", Arial, sans-serif; fill: #24292f }
.name { font-family: ui-monospace, "DejaVu Sans Mono", monospace; text-anchor: end }
.title { font-size: 15px; font-weight: 600 }
.tick { text-anchor: middle }
.soft, .tick { fill: #57606a }
.page { fill: #ffffff }
.row { fill: #f6f8fa }
.grid { stroke: #e3e6ea }
.bar { stroke: #6e7781; stroke-width: 0.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.soft, .tick { fill: #9ea7b3 }
.page { fill: #0d1117 }
.row { fill: #161b22 }
.grid { stroke: #30363d }
.bar { stroke: #8b949e }
}
.job { font-size: 9px; fill: #ffffff; text-anchor: middle }
"""
"""The outline of bars shows those whose colour is close to the page's."""
PATTERN = """<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse"
 patternTransform="rotate(45)"><rect width="5" height="5" fill="{light}"/>
<rect width="2" height="5" fill="{dark}"/></pattern>"""


def draw(history: History, zone: tzinfo | None = None) -> str:
    """Return the picture as text; `zone` of its times, by default that of this machine."""
    return "\n".join(_Picture(history, zone).lines()) + "\n"


class _Picture:
    def __init__(self, history: History, zone: tzinfo | None) -> None:
        self.history = history
        self.zone = zone
        self.names = sorted(history.nodes, key=in_order)
        self.row = 18 if len(self.names) <= 40 else 14 if len(self.names) <= 100 else 11
        longest = max(map(len, [*self.names, "jobs"]))
        self.left = MARGIN + GAP + NAME_LETTER * longest * self._size / 11
        self.lanes, self.more = _lanes(history.jobs)

    @property
    def _size(self) -> int:
        """Font size of names, in pixels."""
        return min(11, self.row - 2)

    def lines(self) -> Iterator[str]:
        legend_end, legend = self._legend(58)
        axis = legend_end + 26
        jobs = axis + GAP
        nodes = jobs + (LANE * len(self.lanes) + (16 if self.more else 0) + 2 * GAP) * bool(
            self.lanes
        )
        sets = {name.rpartition("-")[0] for name in self.names}
        end = nodes + self.row * len(self.names) + GAP * max(0, len(sets) - 1)
        width, height = self.left + CHART + 2 * MARGIN, end + 24 + MARGIN
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" role="img">'
        )
        yield f"<title>{TITLE}</title>"
        yield f"<style>{STYLE}</style>"
        yield "<defs>"
        yield PATTERN.format(name="waits", light="#e4e9f3", dark="#a9b8d8")
        yield PATTERN.format(name="lost", light="#fbe3e4", dark="#c9474c")
        yield "</defs>"
        yield f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
        yield _text(MARGIN, 28, TITLE, "title")
        yield _text(MARGIN, 46, self._period(), "soft")
        yield from legend
        yield from self._axis(axis, end)
        yield from self._jobs(jobs)
        yield from self._nodes(nodes)
        yield "</svg>"

    def _when(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, self.zone).astimezone(self.zone)

    def _clock(self, at: float) -> str:
        return f"{self._when(at):%H:%M:%S}"

    def _period(self) -> str:
        begin, end = self._when(self.history.begin), self._when(self.history.end)
        to = f"{end:%H:%M}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
        counts = f"{_count(len(self.names), 'node')} · {_count(len(self.history.jobs), 'job')}"
        return f"{begin:%Y-%m-%d %H:%M} to {to} {end:%Z} · {counts}"

    def _x(self, at: float) -> float:
        begin, end = self.history.begin, self.history.end
        return self.left + CHART * (min(max(at, begin), end) - begin) / max(end - begin, 1e-9)

    def _legend(self, top: float) -> tuple[float, list[str]]:
        """The colours that occur; returns also the legend's lower end."""
        stages = {span.stage for spans in self.history.nodes.values() for span in spans}
        entries = [(stage.value, colour) for stage, colour in COLOURS.items() if stage in stages]
        if self.history.jobs:
            entries += [("job waits for its nodes", JOB_WAITS), ("job has its nodes", JOB)]
        if any(job.lost for job in self.history.jobs):
            entries.append(("nodes released, job is queued again", JOB_LOST))
        lines: list[str] = []
        x: float = MARGIN
        for text, colour in entries:
            width = 18 + LETTER * len(text) + 14
            if x + width > self.left + CHART + MARGIN and x > MARGIN:
                x, top = MARGIN, top + 18
            lines.append(_bar((x, top, 12, 12), colour))
            lines.append(_text(x + 17, top + 10, text))
            x += width
        return top + 12, lines

    def _axis(self, top: float, end: float) -> Iterator[str]:
        length = self.history.end - self.history.begin
        step = next((step_s for step_s in STEPS_S if length / step_s <= TICKS), STEPS_S[-1])
        # Ticks at round times of the zone.
        offset = self._when(self.history.begin).utcoffset()
        shift = offset.total_seconds() if offset else 0
        at = -(-(self.history.begin + shift) // step) * step - shift
        day = None
        while at <= self.history.end:
            x, when = self._x(at), self._when(at)
            yield f'<line class="grid" x1="{x:.1f}" y1="{top:.0f}" x2="{x:.1f}" y2="{end:.0f}"/>'
            text = f"{when:%H:%M:%S}" if step < 60 else f"{when:%H:%M}"
            if step >= 86400 or (day and when.date() != day):
                text = f"{when:%m-%d}" if step >= 86400 else f"{when:%m-%d %H:%M}"
            day = when.date()
            yield _text(x, top - 5, text, "tick")
            yield _text(x, end + 16, text, "tick")
            at += step

    def _jobs(self, top: float) -> Iterator[str]:
        if self.lanes:
            yield _text(self.left - GAP, top + LANE - 3, "jobs", "name")
        for lane in self.lanes:
            for job in lane:
                yield from self._job(job, top)
            top += LANE
        if self.more:
            yield _text(self.left, top + 12, f"and {self.more} more jobs at the same time", "soft")

    def _job(self, job: JobSpan, y: float) -> Iterator[str]:
        size = _count(len(job.nodes), "node")
        wait = lasted(job.ready - job.begin)
        hint = f"job {job.id}, {size}: asked {self._clock(job.begin)}, "
        hint += f"released after {wait}" if job.lost else f"waited {wait}"
        rows = (y, LANE - 2)
        colour = JOB_LOST if job.lost else JOB_WAITS
        yield self._span((job.begin, job.ready), rows, colour, hint)
        if job.end > job.ready:
            hint += f", ran {lasted(job.end - job.ready)}"
            yield self._span((job.ready, job.end), rows, JOB, hint)
            begin, end = self._x(job.ready), self._x(job.end)
            if end - begin > LETTER * len(str(job.id)) + 4:
                yield _text((begin + end) / 2, y + LANE - 4.5, str(job.id), "job")

    def _nodes(self, top: float) -> Iterator[str]:
        set_before = None
        for at, name in enumerate(self.names):
            node_set = name.rpartition("-")[0]
            if set_before is not None and node_set != set_before:
                top += GAP
            set_before = node_set
            if at % 2 == 0:
                yield f'<rect class="row" x="{MARGIN}" y="{top:.1f}" ' + (
                    f'width="{self.left + CHART - MARGIN:.1f}" height="{self.row}" opacity="0.6"/>'
                )
            base = top + self.row / 2 + self._size * 0.36
            size = f' style="font-size:{self._size}px"'
            yield _text(self.left - GAP, base, name, "name", size)
            for span in self.history.nodes[name]:
                hint = self._hint(name, span)
                colour = COLOURS[span.stage]
                rows = (top + 1.5, self.row - 3)
                yield self._span((span.begin, span.end), rows, colour, hint)
            top += self.row

    def _hint(self, name: str, span: Span) -> str:
        parts = [
            f"{name}: {span.stage.value} for {lasted(span.end - span.begin)}",
            f"from {self._clock(span.begin)}",
            span.where,
            span.reason,
        ]
        return ", ".join(part for part in parts if part)

    def _span(
        self, times: tuple[float, float], rows: tuple[float, float], colour: str, hint: str
    ) -> str:
        """A bar from one time to another; `rows`: its upper end and its height."""
        begin, end = map(self._x, times)
        return _bar((begin, rows[0], max(1.0, end - begin), rows[1]), colour, hint)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lanes(jobs: Sequence[JobSpan]) -> tuple[list[list[JobSpan]], int]:
    """Put jobs into rows without overlaps; return also how many had no place."""
    lanes: list[list[JobSpan]] = []
    more = 0
    for job in jobs:
        free = next((lane for lane in lanes if lane[-1].end <= job.begin), None)
        if free is not None:
            free.append(job)
        elif len(lanes) < LANES:
            lanes.append([job])
        else:
            more += 1
    return lanes, more


def _bar(box: tuple[float, float, float, float], colour: str, hint: str = "") -> str:
    """A rectangle: left, upper end, width, height."""
    place = 'x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box)
    # Browsers show a title as a hint.
    inside = f"><title>{_safe(hint)}</title></rect>" if hint else "/>"
    return f'<rect class="bar" {place} fill="{colour}"{inside}'


def _text(x: float, y: float, text: str, kind: str = "", more: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{css}{more}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Escape a text for XML, without the characters that XML does not allow."""
    return escape(one_line(text))
