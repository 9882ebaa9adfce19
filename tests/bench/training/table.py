"""What a run of train.py has measured, what a run on more nodes would take, and the table of both.

Pure: texts in, texts out. The model has four inputs, all measured: the time of a step without
exchange, that of making a batch, latency and bandwidth between nodes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

ORIGINAL = {1: 393.8, 2: 422.2, 3: 285.4, 4: 209.6, 6: 153.3, 8: 121.6, 10: 101.4}
"""Nodes -> seconds of the table that this one is measured against; its batch is not known."""
AT_TWO = 0.85
"""Efficiency at two nodes that is the goal."""
ALIKE = 0.01
"""How far the accuracy may be from one node's with the same global batch."""


class TableError(Exception):
    """Why there is no table, in one sentence."""


@dataclass(frozen=True)
class Result:
    """A run, as train.py prints it; times and bytes of a step are means."""

    nodes: int
    start_up_s: float
    """From the start of the job's shell to the first step."""
    seconds: float
    """From the first to the last step."""
    steps: int
    compute_s: float
    """A step without exchange, while the other nodes compute too."""
    data_s: float
    small_s: float
    """An all-reduce of one number, alone."""
    large_s: float
    """An all-reduce of all gradients, alone."""
    sent_bytes: float
    """What the first node has sent in a step."""
    bytes: int
    """Of the gradients."""
    loss: float
    accuracy: float
    threads: int
    cores: int
    batch: int
    """Of each node."""
    epochs: int
    images: int

    @property
    def exchange_s(self) -> float:
        """What a step takes beyond data and compute: the wait for the all-reduce."""
        if self.nodes == 1:
            return 0.0
        return max(0.0, self.seconds / self.steps - self.compute_s - self.data_s)


def parse(output: str) -> Result:
    """Return what a job has measured.

    Raises:
        TableError: its output has no such line.

    """
    names = {field.name for field in fields(Result)}
    for line in reversed(output.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and names <= found.keys():
            return Result(**{name: found[name] for name in names})
    end = " / ".join(output.strip().splitlines()[-3:]) or "nothing"
    raise TableError(f"the job has measured nothing; its output ends with: {end}")


def progress(line: str) -> tuple[int, float] | None:
    """Return the epoch that a line of a job says is done, and the seconds until then."""
    try:
        found = json.loads(line)
        return int(found["epoch"]), float(found["seconds"])
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    nodes: int
    seconds: float
    efficiency: float
    compute_s: float
    exchange_s: float
    data_s: float
    sent_bytes: float
    measured: Result | None = None
    """None: the model's."""


@dataclass(frozen=True)
class Model:
    """What more nodes would take, from the largest run that was measured."""

    base: Result

    @property
    def latency_s(self) -> float:
        """Of one message between two nodes: an all-reduce of a ring has 2 (n - 1) in a row."""
        return self.base.small_s / (2 * (self.base.nodes - 1))

    @property
    def bandwidth(self) -> float:
        """Bytes in a second that a node sends while gradients are exchanged."""
        spent = self.base.large_s - self.base.small_s
        return ring_bytes(self.base.nodes, self.base.bytes) / spent if spent > 0 else math.inf

    def ring_s(self, nodes: int) -> float:
        """Return the seconds of an all-reduce of the gradients, alone."""
        sent = ring_bytes(nodes, self.base.bytes)
        return 2 * (nodes - 1) * self.latency_s + sent / self.bandwidth

    def exchange_s(self, nodes: int) -> float:
        """Return what a step waits: as in the base, with the ring of more nodes."""
        longer = self.ring_s(nodes) - self.ring_s(self.base.nodes)
        return max(0.0, self.base.exchange_s + longer)

    def seconds(self, nodes: int) -> float:
        """Return the time from the first to the last step."""
        step = self.base.compute_s + self.base.data_s + self.exchange_s(nodes)
        return steps(nodes, self.base) * step


def ring_bytes(nodes: int, size: int) -> float:
    """Return the bytes that a node sends in an all-reduce of a ring."""
    return 2 * (nodes - 1) / nodes * size


def steps(nodes: int, like: Result) -> int:
    """Return the steps of all epochs."""
    return like.epochs * math.ceil(like.images / (nodes * like.batch))


def rows(results: Sequence[Result], wanted: Sequence[int] = tuple(ORIGINAL)) -> list[Row]:
    """Return what was measured, and of the other wanted numbers of nodes what the model says.

    Raises:
        TableError: one node was not measured.

    """
    measured = {result.nodes: result for result in results}
    if 1 not in measured:
        raise TableError("one node was not measured, so there is no efficiency")
    one = measured[1].seconds
    found = [
        Row(
            nodes,
            result.seconds,
            one / (nodes * result.seconds),
            result.compute_s,
            result.exchange_s,
            result.data_s,
            result.sent_bytes,
            result,
        )
        for nodes, result in measured.items()
    ]
    largest = max(measured)
    if largest > 1:
        model = Model(measured[largest])
        found += [
            Row(
                nodes,
                model.seconds(nodes),
                one / (nodes * model.seconds(nodes)),
                model.base.compute_s,
                model.exchange_s(nodes),
                model.base.data_s,
                ring_bytes(nodes, model.base.bytes),
            )
            for nodes in wanted
            if nodes > largest
        ]
    return sorted(found, key=lambda row: row.nodes)


# -- texts ----------------------------------------------------------------------------------------

HEAD = (
    *("nodes", "seconds", "efficiency", "original", "loss", "accuracy", "start-up"),
    *("compute", "all-reduce", "data", "sent in a step"),
)


def table(found: Sequence[Row]) -> str:
    """Return the rows as a table of Markdown; what the model says is marked."""
    one = ORIGINAL[1]
    lines = [HEAD, ("---",) * len(HEAD)]
    for row in found:
        original = ORIGINAL.get(row.nodes)
        run = row.measured
        lines.append(
            (
                f"{row.nodes}" if run else f"{row.nodes} (model)",
                f"{row.seconds:.1f}",
                f"{row.efficiency:.2f}",
                f"{original} s, {one / (row.nodes * original):.2f}" if original else "",
                f"{run.loss:.4f}" if run else "",
                f"{run.accuracy:.4f}" if run else "",
                f"{run.start_up_s:.1f} s" if run else "",
                f"{1000 * row.compute_s:.1f} ms",
                f"{1000 * row.exchange_s:.1f} ms",
                f"{1000 * row.data_s:.1f} ms",
                f"{row.sent_bytes / 1e6:.2f} MB",
            )
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def effects(whole: Result, without: Mapping[str, Result | str]) -> str:
    """Return what each thing that the toolkit contributes changes, as a table of Markdown.

    Args:
        whole: The run with all of it, on as many nodes.
        without: What was switched off -> the run, or why there is none.

    """
    lines = [f"| switched off, {whole.nodes} nodes | seconds | times | threads | start-up |"]
    lines.append("|---|---|---|---|---|")
    for name, run in {"nothing": whole, **without}.items():
        if isinstance(run, str):
            lines.append(f"| {name} | {run} | | | |")
            continue
        lines.append(
            f"| {name} | {run.seconds:.1f} | {run.seconds / whole.seconds:.2f} | {run.threads} "
            f"| {run.start_up_s:.1f} s |"
        )
    return "".join(f"{line}\n" for line in lines)


def verdicts(found: Sequence[Row], alike: Result | None) -> list[str]:
    """Return whether the goals are reached, a sentence for each.

    Args:
        found: The rows.
        alike: One node's run with the global batch of the largest number of nodes measured.

    """
    said = []
    two = next((row for row in found if row.nodes == 2 and row.measured), None)
    if two:
        word = "reached" if two.efficiency >= AT_TWO else "not reached"
        was = ORIGINAL[1] / (2 * ORIGINAL[2])
        said.append(
            f"efficiency at two nodes: {two.efficiency:.2f}, the goal of {AT_TWO} is {word} "
            f"(original: {was:.2f})"
        )
    runs = {row.nodes: row.measured for row in found if row.measured}
    largest = runs[max(runs)]
    if largest.nodes > 1:
        one, many = runs[1].compute_s, largest.compute_s
        said.append(
            f"a step without exchange takes {1000 * one:.1f} ms on one node, and {1000 * many:.1f} "
            f"ms while {largest.nodes} compute: without any exchange the efficiency would be "
            f"{one / many:.2f}, as the nodes share the machine's memory and clock"
        )
    if alike and largest.nodes > 1:
        apart = abs(largest.accuracy - alike.accuracy)
        word = "within" if apart <= ALIKE else "not within"
        said.append(
            f"accuracy on {largest.nodes} nodes: {largest.accuracy:.4f}, on one with the same "
            f"global batch of {alike.batch}: {alike.accuracy:.4f}, {word} {ALIKE}"
        )
    return said
