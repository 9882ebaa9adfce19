"""Run the layers of a tier, two at a time where each leaves a core idle, and print their seconds.

    python tests/prove.py test                 what every change must pass
    python tests/prove.py proof                the rest; what passed at this commit is not repeated
    python tests/prove.py proof --part vm      one part of it, even if it passed

Each layer is a target of the Makefile. Its lines appear as it prints them, behind its name where
two layers run at once; the whole is in build/prove/. All layers run even if one fails. Exit code:
0 if all passed, 1 if one failed, 130 after an interruption.
"""
# ruff: noqa: T201

import argparse
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "prove"

CORES = 2
"""What the layers are made for. Of networks and clouds a machine has one each, so more cores make a
run faster, but start no more layers."""

LAYER_SECONDS = 40 * 60
"""Bound of one layer."""

SILENT_SECONDS = 60
"""After that it is said of a layer that prints nothing that it goes on."""

END_SECONDS = 120
"""How long a layer that was told to end may take to remove its machines."""


@dataclass(frozen=True)
class Layer:
    """A target of the Makefile, with its variables."""

    name: str
    target: str
    cores: int = 1
    """How many it keeps busy."""
    variables: tuple[str, ...] = ()
    alone: str = ""
    """What the machine has once: two layers that name the same thing don't run at once."""

    @property
    def command(self) -> list[str]:
        """What runs it."""
        return ["make", "--no-print-directory", self.target, *self.variables]


TEST = (
    Layer("unit", "unit", cores=2),
    Layer("lint", "lint"),
    Layer("vm", "vm"),
    Layer("cluster", "cluster"),
    Layer("cloud", "cloud", alone="cloud"),
    Layer("engine", "engine"),
    Layer("molecule", "molecule", cores=2),
)
"""Those that leave a core idle side by side, so that both lines end at about the same time."""

PROOF_ONLY = ("MARK=proof",)
PROOF = (
    # In real time: what is busy beside them makes them late.
    Layer("schedules", "unit", cores=2, variables=PROOF_ONLY),
    Layer("vm", "vm", variables=PROOF_ONLY),
    Layer("cloud-trixie", "cloud-trixie", alone="cloud"),
    Layer("cloud", "cloud", variables=PROOF_ONLY, alone="cloud"),
    Layer("cluster", "cluster", variables=PROOF_ONLY),
    Layer("engine", "engine", variables=PROOF_ONLY),
    Layer("isolated", "isolated", cores=2),
)
TIERS = {"test": TEST, "proof": PROOF}


@dataclass
class Run:
    """A layer that runs or has run."""

    layer: Layer
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it has ended well."""
        return self.process.returncode == 0

    def end(self, number: int) -> None:
        """Send a signal to all that belongs to it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)


class Runs:
    """The layers of one call."""

    def __init__(self, layers: Sequence[Layer], passed: Callable[[Layer], None]) -> None:
        self.waiting = list(layers)
        self.passed = passed
        self.beside = len(layers) > 1
        self.ended: list[Run] = []
        self.running: list[Run] = []
        self.change = threading.Condition()
        self.begin = time.monotonic()

    def run(self) -> None:
        """Run all; an interruption ends those that run and is raised again."""
        try:
            with self.change:
                while self.waiting or self.running:
                    while (layer := self._next()) is not None:
                        self.waiting.remove(layer)
                        self._start(layer)
                    self.change.wait()
        except KeyboardInterrupt:
            self._interrupt()
            raise

    def _next(self) -> Layer | None:
        """Return the first layer for which there is room now."""
        free = CORES - sum(run.layer.cores for run in self.running)
        taken = {run.layer.alone for run in self.running} - {""}
        return next(
            (each for each in self.waiting if each.cores <= free and each.alone not in taken), None
        )

    def _start(self, layer: Layer) -> None:
        self._say(layer, f"begins: {' '.join(layer.command)}")
        process = subprocess.Popen(
            layer.command,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        run = Run(layer, process)
        self.running.append(run)
        threading.Thread(target=self._follow, args=(run,)).start()

    def _follow(self, run: Run) -> None:
        """Pass on what a layer prints, until its end."""

        def too_long() -> None:
            self._say(run.layer, f"no end after {LAYER_SECONDS} s, so it is ended")
            run.end(signal.SIGTERM)
            time.sleep(END_SECONDS)
            run.end(signal.SIGKILL)

        bound = threading.Timer(LAYER_SECONDS, too_long)
        bound.daemon = True
        bound.start()
        with (LOGS / f"{run.layer.name}.log").open("w", encoding="utf-8") as log:
            for line in self._lines(run):
                log.write(f"{line}\n")
                log.flush()
                print(f"{run.layer.name:<12} | {line}" if self.beside else line, flush=True)
        run.process.wait()
        bound.cancel()
        with self.change:
            run.seconds = time.monotonic() - run.began
            self.running.remove(run)
            self.ended.append(run)
            if run.passed:
                self.passed(run.layer)
            verdict = "passed" if run.passed else f"FAILED ({run.process.returncode})"
            self._say(run.layer, f"{verdict} after {run.seconds:.0f} s")
            self.change.notify()

    def _lines(self, run: Run) -> Iterator[str]:
        """Yield the lines of a layer; of one that prints none for long, what it is at."""
        assert run.process.stdout is not None
        rest = b""
        since = time.monotonic()
        while True:
            ready, _, _ = select.select([run.process.stdout], [], [], SILENT_SECONDS)
            if not ready and run.process.poll() is not None:
                break  # what it left behind holds its output
            if not ready:
                at = rest.decode(errors="replace").strip()
                self._say(run.layer, f"goes on, silent for {time.monotonic() - since:.0f} s: {at}")
                continue
            data = os.read(run.process.stdout.fileno(), 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            since = time.monotonic()
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def _say(self, layer: Layer, what: str) -> None:
        print(f"=== {time.monotonic() - self.begin:5.0f} s  {layer.name} {what}", flush=True)

    def _interrupt(self) -> None:
        """End what runs, and wait until it has removed its machines."""
        print("interrupted; the layers that run remove their machines", flush=True)
        with self.change:
            self.waiting.clear()
            for run in self.running:
                run.end(signal.SIGTERM)
            if not self.change.wait_for(lambda: not self.running, END_SECONDS):
                for run in self.running:
                    run.end(signal.SIGKILL)


class Passed:
    """Which layers of a tier have passed at this commit: of a changed tree nothing is known."""

    def __init__(self, tier: str) -> None:
        self.commit = _commit()
        self.folder = LOGS / "passed" / tier / self.commit

    def __contains__(self, layer: Layer) -> bool:
        return bool(self.commit) and (self.folder / layer.name).exists()

    def add(self, layer: Layer) -> None:
        """Remember that a layer passed, if the tree is still that of the commit."""
        if self.commit and self.commit == _commit():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / layer.name).touch()


def _commit() -> str:
    """Return the commit whose tree this is; empty if something is changed, or without git."""
    status, head = (
        subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        for words in (["status", "--porcelain"], ["rev-parse", "HEAD"])
    )
    return head.stdout.strip() if not status.stdout and head.returncode == 0 else ""


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument(
        "--part", action="append", help="only this layer, even if it passed; repeatable"
    )
    arguments = parser.parse_args()
    layers = TIERS[arguments.tier]
    names = [layer.name for layer in layers]
    if unknown := set(arguments.part or ()) - set(names):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    LOGS.mkdir(parents=True, exist_ok=True)
    passed = Passed(arguments.tier)
    if arguments.part:
        layers = tuple(layer for layer in layers if layer.name in arguments.part)
    elif arguments.tier == "proof":
        for layer in layers:
            if layer in passed:
                print(f"{layer.name} passed at this commit; --part {layer.name} repeats it")
        layers = tuple(layer for layer in layers if layer not in passed)
    # A CI job that is cancelled gets SIGTERM, and a background job would ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    runs = Runs(layers, passed.add)
    try:
        runs.run()
    except KeyboardInterrupt:
        return 130
    report(runs)
    return 0 if all(run.passed for run in runs.ended) else 1


def report(runs: Runs) -> None:
    """Print the seconds of each layer, in the order in which they ended."""
    print("=== seconds by layer")
    for run in runs.ended:
        log = (LOGS / f"{run.layer.name}.log").relative_to(ROOT)
        verdict = "passed" if run.passed else f"FAILED: {log}"
        print(f"{run.seconds:6.0f}  {run.layer.name:<12}  {verdict}")
    print(f"{time.monotonic() - runs.begin:6.0f}  in all")


if __name__ == "__main__":
    sys.exit(main())
