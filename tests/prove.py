"""Run the layers of a tier, up to three at a time since they often wait, and print their seconds.

    python tests/prove.py test                 what every change must pass
    python tests/prove.py test --since main    of it what the paths can touch that changed since
    python tests/prove.py proof                the rest; what passed at this commit is not repeated
    python tests/prove.py proof --layer vm      one layer of it, even if it passed; repeatable

Each layer is a target of the Makefile. Its lines appear as it prints them, behind its name where
two layers run at once; all of them are in build/prove/TIER/LAYER.log. All layers run even if one
fails. After a signal the layers remove their machines, which may take two minutes. Exit code: 0 if
all passed, 1 if one failed, 2 if nothing could be run, 130 after a signal.
"""
# ruff: noqa: T201

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from types import FrameType

import changes
import process_tree
import since

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "prove"

PLACES = 3
"""How many layers may run at a time: on two cores, since most wait for half of their time.

More cores don't start more: layers share a cloud and names of networks."""

LAYER_SECONDS = 60 * 60
"""Timeout of one layer."""

SILENT_SECONDS = 60
"""A layer that prints nothing for so long gets a line that says it still runs."""

END_SECONDS = 120
"""How long a layer may take to remove its machines after a signal."""

TOLD = re.compile(r"^(FAILED|ERROR) |^E   |^fatal: |: error: |^error: ")
"""Lines of pytest, Ansible, mypy and of the tests' own programs that say what failed."""

TOLD_LINES = 6
"""How many of them are repeated at the end of the output."""

OWN = {
    *("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"),
    *("ROLE", "MARK", "RELEASE", "TESTS", "LAYER", "SINCE"),
}
"""Variables of one layer, or of this program: a layer does not inherit them."""

CHANGED_BY = ("PROVIDER", "PYTEST_ADDOPTS", "MUSTER_SEED")
"""Variables of tests: a run with one of them is not recorded as passed."""


@dataclass(frozen=True)
class Layer:
    """A target of the Makefile, with its variables."""

    name: str
    target: str
    places: int = 1
    """How many it takes: more, if it has several processes; all, if it must not be delayed."""
    variables: tuple[str, ...] = ()
    resource: str = ""
    """What the machine has once: layers with the same one don't run at the same time."""

    @property
    def command(self) -> list[str]:
        """What runs it."""
        return ["make", "--no-print-directory", self.target, *self.variables]


TEST = (
    Layer("molecule", "molecule"),
    # Some of its tests wait, so it leaves a part of the cores to another layer.
    Layer("unit", "unit", places=2),
    Layer("cloud", "cloud", resource="cloud"),
    Layer("cluster", "cluster"),
    Layer("vm", "vm"),
    Layer("lint", "lint"),
    Layer("engine", "engine"),
)
"""The longest first, so that all places are free at about the same time."""

PROOF_ONLY = ("MARK=proof",)


def _files(folder: str, *names: str) -> str:
    """Return the variable TESTS with test files of a folder of tests/."""
    return "TESTS=" + " ".join(f"tests/{folder}/test_{name}.py" for name in names)


def _others(folder: str, *parts: str) -> str:
    """Return TESTS with the test files of a folder that are in no other part."""
    taken = {path for part in parts for path in part.removeprefix("TESTS=").split()}
    found = {f"tests/{folder}/{path.name}" for path in (ROOT / "tests" / folder).glob("test_*.py")}
    return "TESTS=" + " ".join(sorted(found - taken))


# Parts of layers that would take longer than LAYER_SECONDS.
SCHEDULES = tuple(
    Layer(
        f"schedules-{number}",
        "unit",
        places=2,
        variables=(
            *PROOF_ONLY,
            f"TESTS=tests/unit/autoscaler/reconcile/test_reconcile_in_time.py -k seed{number}",
        ),
    )
    for number in range(3)
)
IN_REAL_TIME = _files("unit", "example_environments", "example_workers")
IN_REAL_TIME += "".join(
    f" tests/unit/autoscaler/test_daemon_{name}.py" for name in ("in_trouble", "killed")
)
LIMITS = _files("live", "fairness", "lab_for_ten", "priority")
FULL_QUEUE = _files("live", "full_queue")
FRAMEWORKS = _files("live", "frameworks", "mpi", "notebook", "search", "search_environments")
# The second file adds to the cluster of the first.
ON_TRIXIE = _files("live", "split", "frameworks_on_trixie")
MODULES = _files("vm", "containers", "packed_modules")
PROOF = (
    *SCHEDULES,
    # Other busy layers would delay them.
    Layer("unit", "unit", places=PLACES, variables=(*PROOF_ONLY, IN_REAL_TIME)),
    Layer("isolated", "isolated"),
    Layer("isolated-slurm", "isolated-slurm"),
    Layer("cloud-trixie", "cloud-trixie", resource="cloud"),
    Layer("cloud", "cloud", variables=PROOF_ONLY, resource="cloud"),
    Layer(
        "cluster",
        "cluster",
        variables=(*PROOF_ONLY, _others("live", LIMITS, FULL_QUEUE, FRAMEWORKS, ON_TRIXIE)),
        resource="lab",
    ),
    Layer("cluster-limits", "cluster", variables=(*PROOF_ONLY, LIMITS), resource="lab"),
    # It bounds the seconds of sbatch.
    Layer("full-queue", "cluster", places=PLACES, variables=(*PROOF_ONLY, FULL_QUEUE)),
    Layer("cluster-frameworks", "cluster", variables=(*PROOF_ONLY, FRAMEWORKS), resource="lab"),
    Layer("cluster-trixie", "cluster", variables=(*PROOF_ONLY, ON_TRIXIE), resource="lab"),
    Layer("engine", "engine", variables=PROOF_ONLY),
    Layer("ceph", "ceph"),
    # On emulated CPUs, and some tests bound the seconds until an answer.
    Layer("vm", "vm", places=PLACES, variables=(*PROOF_ONLY, _others("vm", MODULES))),
    Layer("vm-modules", "vm", places=PLACES, variables=(*PROOF_ONLY, MODULES)),
)
TIERS = {"test": TEST, "proof": PROOF}


@dataclass
class Run:
    """A layer that runs or has run."""

    layer: Layer
    process: subprocess.Popen[bytes]
    began: float
    seconds: float = 0.0
    followed: bool = True
    """False: its output could not be read to the end, so its result is unknown."""

    @property
    def passed(self) -> bool:
        """Whether it has passed."""
        return self.followed and self.process.returncode == 0

    def end(self) -> None:
        """Tell its processes to end; they remove their machines."""
        with suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End all its processes now."""
        if self.process.poll() is None:
            process_tree.kill(self.process.pid)


class Runs:
    """The layers of one call."""

    def __init__(
        self, layers: Sequence[Layer], logs: Path, record: Callable[[Layer], None]
    ) -> None:
        self.waiting = list(layers)
        self.logs = logs
        self.record = record
        self.beside = len(layers) > 1
        self.ended: list[Run] = []
        self.running: list[Run] = []
        self.change = threading.Condition()
        self.begin = time.monotonic()
        self.interrupted = False

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Record a signal; a second one changes nothing."""
        self.interrupted = True

    def run(self) -> None:
        """Run all layers; after a signal, end the running ones."""
        with self.change:
            while (self.waiting or self.running) and not self.interrupted:
                while (layer := self._next()) is not None:
                    self.waiting.remove(layer)
                    self._start(layer)
                # A handler of a signal runs between two calls of this.
                self.change.wait(0.5)
            if self.interrupted:
                self._end_all()

    def _end_all(self) -> None:
        for run in self.running:
            run.end()
        say(f"interrupted; what runs removes its machines, for {END_SECONDS} s at most")
        if not self.change.wait_for(lambda: not self.running, END_SECONDS):
            for run in self.running:
                run.kill()
                say(f"{run.layer.name} was killed: {LEFT}")

    def _next(self) -> Layer | None:
        """Return the first layer that can start now."""
        free = PLACES - sum(run.layer.places for run in self.running)
        taken = {run.layer.resource for run in self.running} - {""}
        return next(
            (
                layer
                for layer in self.waiting
                if layer.places <= free and layer.resource not in taken and not self.interrupted
            ),
            None,
        )

    def _start(self, layer: Layer) -> None:
        self._say(layer, f"begins: {shorten(' '.join(layer.command), 160, placeholder=' ...')}")
        process = subprocess.Popen(
            layer.command,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in OWN}
            | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Only this program gets a Ctrl-C at the terminal; it then ends the layers.
            start_new_session=True,
        )
        run = Run(layer, process, time.monotonic())
        self.running.append(run)
        threading.Thread(target=self._follow, args=(run,), daemon=True).start()

    def _follow(self, run: Run) -> None:
        """Print a layer's output until its end."""
        bound = threading.Timer(LAYER_SECONDS, self._end_late, (run,))
        bound.daemon = True
        bound.start()
        try:
            with (self.logs / f"{run.layer.name}.log").open("w", encoding="utf-8") as log:
                for line in self._lines(run):
                    log.write(f"{line}\n")
                    log.flush()
                    say(f"{run.layer.name:<12} | {line}" if self.beside else line)
            run.process.wait()
        except OSError as error:
            # Such as a full disk. It must not wait for somebody who reads what it prints.
            run.followed = False
            run.kill()
            self._say(run.layer, f"killed, for its log can't be written: {error}; {LEFT}")
            run.process.wait()
        finally:
            bound.cancel()
            run.seconds = time.monotonic() - run.began
            self._conclude(run)
            with self.change:
                self.running.remove(run)
                self.ended.append(run)
                self.change.notify_all()

    def _conclude(self, run: Run) -> None:
        verdict = "passed" if run.passed else f"FAILED ({run.process.returncode})"
        self._say(run.layer, f"{verdict} after {run.seconds:.0f} s")
        if run.passed:
            with suppress(OSError):  # the layer then runs again
                self.record(run.layer)

    def _end_late(self, run: Run) -> None:
        run.end()
        self._say(run.layer, f"is ended: it took longer than {LAYER_SECONDS} s (LAYER_SECONDS)")
        time.sleep(END_SECONDS)
        run.kill()

    def _lines(self, run: Run) -> Iterator[str]:
        """Yield the lines of a layer; print a line for one that has been silent for long."""
        assert run.process.stdout is not None
        rest = b""
        since = time.monotonic()
        while True:
            ready, _, _ = select.select([run.process.stdout], [], [], SILENT_SECONDS)
            if not ready and run.process.poll() is not None:
                break  # a process that it left holds its output open
            if not ready:
                at = rest.decode(errors="replace").strip()
                self._say(
                    run.layer, f"still runs, silent for {time.monotonic() - since:.0f} s: {at}"
                )
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
        say(f"=== {time.monotonic() - self.begin:5.0f} s  {layer.name} {what}")


LEFT = "machines may be left, `podman ps --all` shows them, `podman rm --force NAME` removes one"


SAYING = threading.Lock()
"""`print` writes a line and its newline separately: two layers' lines would mix."""


def say(line: str) -> None:
    """Print a line, if anybody still reads: a closed terminal must not stop the clean-up."""
    with SAYING, suppress(OSError, ValueError):
        print(line, flush=True)


class Record:
    """The layers of the proof that have passed at this commit; none for a changed tree."""

    def __init__(self) -> None:
        self.commit = "" if any(name in os.environ for name in CHANGED_BY) else _commit()
        self.folder = LOGS / "passed" / self.commit

    def __contains__(self, layer: Layer) -> bool:
        return bool(self.commit) and (self.folder / layer.name).exists()

    def add(self, layer: Layer) -> None:
        """Record that a layer passed, if the tree is still that of the commit."""
        if self.commit and self.commit == _commit():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / layer.name).touch()


def _commit() -> str:
    """Return the commit whose tree this is; empty if something is changed, or without git."""
    try:
        status, head = (
            subprocess.run(
                ["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
            ).stdout.strip()
            for words in (["status", "--porcelain"], ["rev-parse", "HEAD"])
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return "" if status else head


def touched(ref: str) -> tuple[list[Layer], dict[str, str]]:
    """Return the layers of `make test` for what changed since `ref`, and why others are left out.

    Prints what each changed path makes run.
    """
    changed = changes.changed_since(ROOT, ref)
    tests = since.Suites(changes.read(ROOT, changed))
    by_path = {path: tests.touched(path) for path in changed}
    say(f"=== {len(changed)} changed since {ref}; lint runs whole")
    for path, names in by_path.items():
        say(f"{path}: {names or 'no tests'}")
    parts = since.parts(tests, by_path.values())
    left_out = {name: part.left_out for name, part in parts.items() if part.left_out}
    for name, reason in left_out.items():
        say(f"{name} is left out: {reason}")
    layers = []
    for layer in TEST:
        part = parts.get(layer.name, since.Part(whole=True))
        if part.names:
            variable = "ROLE" if layer.name == "molecule" else "TESTS"
            layers.append(replace(layer, variables=(f"{variable}={' '.join(part.names)}",)))
        elif part.whole:
            layers.append(layer)
    return layers, left_out


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument(
        "--layer", action="append", help="only this layer, even if it passed; repeatable"
    )
    parser.add_argument(
        "--since", metavar="REF", help="only what the paths can touch that changed since REF"
    )
    arguments = parser.parse_args()
    layers = TIERS[arguments.tier]
    names = [layer.name for layer in layers]
    if unknown := set(arguments.layer or ()) - set(names):
        parser.error(f"no layer {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if arguments.since and (arguments.tier != "test" or arguments.layer):
        parser.error("--since is for the whole of `test`")
    if not may_be_root():
        parser.error("containers need root: run as root, or let sudo ask for no password")

    record = Record() if arguments.tier == "proof" else None
    left_out: dict[str, str] = {}
    if arguments.since:
        try:
            layers, left_out = touched(arguments.since)
        except changes.UnknownRefError as error:
            parser.error(str(error))
        except SyntaxError as error:
            parser.error(f"{error.filename}:{error.lineno}: {error.msg}")
    elif arguments.layer:
        layers = tuple(layer for layer in layers if layer.name in arguments.layer)
    elif record:
        for layer in layers:
            if layer in record:
                say(f"{layer.name} passed at this commit; LAYER={layer.name} repeats it")
        layers = tuple(layer for layer in layers if layer not in record)
    logs = LOGS / str(arguments.tier)
    logs.mkdir(parents=True, exist_ok=True)
    runs = Runs(layers, logs, record.add if record else lambda _: None)
    # A CI job that is cancelled gets SIGTERM, and a background job would ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, runs.interrupt)
    runs.run()
    report(runs, left_out)
    if runs.interrupted:
        return 130
    return 0 if all(run.passed for run in runs.ended) else 1


def may_be_root() -> bool:
    """Whether a layer, which has no terminal, may become root."""
    if os.geteuid() == 0:
        return True
    try:
        command = ["sudo", "--non-interactive", "true"]
        done = subprocess.run(command, capture_output=True, start_new_session=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def report(runs: Runs, left_out: Mapping[str, str]) -> None:
    """Print the seconds of each layer, in the order of their ends, and the failures."""
    say("=== seconds by layer")
    for run in runs.ended:
        log = (runs.logs / f"{run.layer.name}.log").relative_to(ROOT)
        verdict = "passed" if run.passed else f"FAILED: {log}"
        say(f"{run.seconds:6.0f}  {run.layer.name:<12}  {verdict}")
    for name, reason in left_out.items():
        say(f"     -  {name:<12}  left out: {reason}")
    say(f"{time.monotonic() - runs.begin:6.0f}  in all")
    for run in runs.ended:
        if not run.passed:
            for line in failures(runs.logs / f"{run.layer.name}.log"):
                say(f"{run.layer.name:<12} | {line[:200]}")


def failures(log: Path) -> list[str]:
    """Return the lines of a log that say what failed, pytest's summary first."""
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8").splitlines()
        matching = [line for line in lines if TOLD.search(line)]
        matching.sort(key=lambda line: not line.startswith(("FAILED", "ERROR")))
        return matching[:TOLD_LINES]
    return []


if __name__ == "__main__":
    code = main()
    with suppress(OSError):
        sys.stdout.flush()
    # Python's own flush at the end would fail again on a closed output.
    os._exit(code)
