"""A Pulumi stack that a test drives: it runs the CLI's commands and reads their event logs.

Results come from the engine's event log, not from its printed output.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMEOUT = 600
"""Timeout of one command in seconds: Google's own provider pauses for 5 s at each instance, 10 s at
each account and 3 s at each member of a role."""

NOTHING = re.compile(r"(^|[\s:/@=])None($|[:/@])")

UNCHANGED = {"same", "read", "refresh"}


class StackError(AssertionError):
    """A command had another result than the test expected; the text is its output."""


def texts_of_nothing(value: Any) -> list[str]:
    """Return the texts of an export that were made from an output without a value.

    Python writes None there, as in `t-controller is at None`. A null by itself is no such text: the
    provider keeps nulls in its state.
    """
    if isinstance(value, str):
        return [value] if NOTHING.search(value) else []
    inner = value.values() if isinstance(value, Mapping) else value
    return [x for v in inner for x in texts_of_nothing(v)] if isinstance(inner, Iterable) else []


@dataclass(frozen=True)
class Step:
    """What the engine did, or would do, to one resource."""

    op: str
    """create, update, delete, same, replace, create-replacement, delete-replaced, refresh ..."""

    urn: str
    failed: bool = False
    replaces: tuple[str, ...] = ()
    """Inputs whose change replaced the resource."""

    differs: tuple[str, ...] = ()
    """Inputs that changed."""

    @property
    def name(self) -> str:
        """The resource's name in the program."""
        return name_of(self.urn)

    @property
    def kind(self) -> str:
        """The resource's type, without its parents'."""
        return self.urn.split("::")[2].split("$")[-1]

    @property
    def of_program(self) -> bool:
        """Whether it is a resource of the program; the stack and providers belong to the engine."""
        return not self.kind.startswith("pulumi:")


@dataclass(frozen=True)
class Run:
    """A command that has ended."""

    code: int
    output: str
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0

    @property
    def counts(self) -> Counter[str]:
        """Steps on the program's resources by operation."""
        return Counter(step.op for step in self.steps if step.of_program)

    def named(self, *ops: str) -> list[str]:
        """Sorted names of the resources with one of these operations."""
        return sorted(step.name for step in self.steps if step.op in ops and step.of_program)

    @property
    def changes(self) -> list[str]:
        """`op name` of all changed resources: empty when nothing changed."""
        return sorted(
            f"{step.op} {step.name}"
            for step in self.steps
            if step.op not in UNCHANGED and step.of_program
        )

    @property
    def failed(self) -> list[str]:
        """Names of the resources that could not be made, changed or removed."""
        return sorted(step.name for step in self.steps if step.failed)


@dataclass
class Stack:
    """A stack of a program, in its own backend.

    `events` is the folder for event logs; `environment` is the commands' whole environment.
    """

    pulumi: Path
    program: Path
    name: str
    environment: dict[str, str]
    events: Path
    runs: int = field(default=0, init=False)

    def create(self, config: Mapping[str, str] | None = None) -> None:
        """Make the stack and set its configuration with `pulumi stack init` and `config`."""
        self.events.mkdir(parents=True, exist_ok=True)
        self.command("stack", "init", self.name)
        self.configure(config or {})

    def configure(self, config: Mapping[str, str], *, secret: bool = False) -> None:
        """Set some keys."""
        kind = "--secret" if secret else "--plaintext"
        for key, value in config.items():
            self.command("config", "set", kind, "--stack", self.name, key, "--", value)

    def preview(self, *options: str, fails: bool = False) -> Run:
        """Run `pulumi preview`."""
        return self.engine("preview", *options, fails=fails)

    def up(self, *options: str, fails: bool = False) -> Run:
        """Run `pulumi up` without a preview."""
        return self.engine("up", "--yes", "--skip-preview", *options, fails=fails)

    def refresh(self, *options: str, fails: bool = False) -> Run:
        """Run `pulumi refresh`."""
        return self.engine("refresh", "--yes", "--skip-preview", *options, fails=fails)

    def destroy(self, *options: str, fails: bool = False) -> Run:
        """Run `pulumi destroy`."""
        return self.engine("destroy", "--yes", "--skip-preview", *options, fails=fails)

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs; secrets as `[secret]`."""
        return dict(json.loads(self.command("stack", "output", "--json", "--stack", self.name)))

    def export(self) -> dict[str, Any]:
        """Return the stack's state."""
        return dict(json.loads(self.command("stack", "export", "--stack", self.name)))

    def resources(self) -> dict[str, dict[str, Any]]:
        """Return the state's resources by their names in the program."""
        listed = self.export()["deployment"].get("resources", [])
        return {name_of(item["urn"]): item for item in listed}

    def pending(self) -> list[dict[str, Any]]:
        """Return operations that a killed engine left in the state."""
        return list(self.export()["deployment"].get("pending_operations") or [])

    def recover(self, made: Mapping[str, str] | None = None) -> None:
        """Free a stack whose engine was killed: remove its lock and settle pending operations.

        The engine can't know whether the cloud has made the pending resources.

        Args:
            made: name in the program -> id, of resources that exist: they are put into the state.

        """
        self.command("cancel", "--yes", "--stack", self.name)
        pending = {item["resource"]["urn"]: item["resource"] for item in self.pending()}
        self.refresh("--clear-pending-creates")
        if made:
            self.take_over(
                [item for item in pending.values() if name_of(item["urn"]) in made], made
            )

    def take_over(self, resources: list[dict[str, Any]], ids: Mapping[str, str]) -> None:
        """Put resources that the cloud has into the state, by `pulumi import`."""
        parents = {item["parent"] for item in resources}
        wanted = {
            "nameTable": {f"parent{index}": urn for index, urn in enumerate(sorted(parents))},
            "resources": [
                {
                    "type": item["type"],
                    "name": name_of(item["urn"]),
                    "id": ids[name_of(item["urn"])],
                    "parent": f"parent{sorted(parents).index(item['parent'])}",
                }
                for item in resources
            ],
        }
        file = self.events / "import.json"
        file.write_text(json.dumps(wanted))
        options = ("--yes", "--skip-preview", "--generate-code=false", "--protect=false")
        self.engine("import", *options, "--file", str(file))

    def command(self, *words: str) -> str:
        """Run a command that doesn't use the engine, and return its output."""
        done = subprocess.run(
            [str(self.pulumi), "--non-interactive", "-C", str(self.program), *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"pulumi {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def engine(self, *words: str, fails: bool = False, timeout: float = TIMEOUT) -> Run:
        """Run a command of the engine to its end; with `fails` it must fail.

        Raises:
            StackError: it didn't.

        """
        with self.running(*words) as process:
            process.wait(timeout)
        run = process.result()
        if (run.code != 0) != fails:
            raise StackError(f"pulumi {' '.join(words)} ended with {run.code}:\n{run.output}")
        return run

    @contextmanager
    def running(self, *words: str) -> Iterator["Process"]:
        """Run a command of the engine while the test does something else.

        At the end all its processes are killed: engine, plugins and program are one session.
        """
        self.runs += 1
        log = self.events / f"{self.runs:02d}-{words[0]}.json"
        with log.with_suffix(".txt").open("w") as printed:
            child = subprocess.Popen(
                [
                    str(self.pulumi),
                    "--non-interactive",
                    *("-C", str(self.program)),
                    *words,
                    *("--stack", self.name),
                    *("--event-log", str(log)),
                ],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            process = Process(child, log)
            try:
                yield process
            finally:
                process.end()


@dataclass
class Process:
    """A running command of the engine."""

    child: subprocess.Popen[bytes]
    log: Path
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Wait for its end.

        Raises:
            StackError: it takes longer than the timeout.

        """
        try:
            self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise StackError(f"not done after {timeout} s:\n{self.printed()}") from None
        self.seconds = time.monotonic() - self.started

    def wait_for(self, seen: Callable[[], bool], timeout: float = 60) -> None:
        """Wait until a condition is true, while the command runs.

        Raises:
            StackError: it isn't within the timeout, or the command ended before.

        """
        until = time.monotonic() + timeout
        while not seen():
            if self.child.poll() is not None:
                raise StackError(f"the command ended too early:\n{self.printed()}")
            if time.monotonic() > until:
                raise StackError(f"not so after {timeout} s:\n{self.printed()}")
            time.sleep(0.05)

    def interrupt(self) -> None:
        """Interrupt as Ctrl-C does: the engine completes running operations."""
        self.child.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill only the engine, as the kernel does when memory is short."""
        self.child.kill()
        self.child.wait()

    def end(self) -> None:
        """Kill what is left of the session."""
        for member in self.session():
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        self.child.wait()

    def session(self) -> list[int]:
        """Return the processes of the engine's session that are alive, the engine among them."""
        pids = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process ended meanwhile
            if int(fields[3]) == self.child.pid and fields[0] != "Z":
                pids.append(int(entry.name))
        return pids

    def printed(self) -> str:
        """Return the output so far."""
        return self.log.with_suffix(".txt").read_text()

    def result(self) -> Run:
        """Return the steps so far."""
        return Run(self.child.returncode, self.printed(), tuple(read_steps(self.log)), self.seconds)


def name_of(urn: str) -> str:
    """Return a resource's name in the program."""
    return urn.rsplit("::", 1)[1]


def read_steps(log: Path) -> Iterator[Step]:
    """Yield the steps of an event log: in a preview those planned, else those done or failed."""
    if not log.exists():
        return
    planned: list[Step] = []
    done: list[Step] = []
    preview = True
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if "resourcePreEvent" in event:
            about = event["resourcePreEvent"]
            preview = preview and bool(about.get("planning"))
            planned.append(step_of(about["metadata"]))
        elif "resOutputsEvent" in event:
            done.append(step_of(event["resOutputsEvent"]["metadata"]))
        elif "resOpFailedEvent" in event:
            done.append(step_of(event["resOpFailedEvent"]["metadata"], failed=True))
    yield from planned if preview else done


def step_of(about: Mapping[str, Any], *, failed: bool = False) -> Step:
    """Return an event's step."""
    return Step(
        about["op"],
        about["urn"],
        failed,
        tuple(about.get("keys") or ()),
        tuple(about.get("diffs") or ()),
    )
