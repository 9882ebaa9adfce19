"""Run molecule scenarios, two at a time, and print the seconds of each step.

    python tests/scenarios.py                 all stations: roles that share machines
    python tests/scenarios.py munge           the scenario of one role, with what breaks it
    python tests/scenarios.py munge --keep    its machines stay, to look at
    python tests/scenarios.py munge --bare    on machines without what the roles install

A station is a scenario that is no role; it has no break.yml. Molecule does the work
(.config/molecule/config.yml); this program only starts it, keeps the logs in build/molecule/, and
leaves no machine behind. Exit code 1 if a scenario failed.
"""
# ruff: noqa: T201

import argparse
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import installed
import process_tree

from muster.gcp.archive import BundleError
from muster_sandbox.containers import base_image, machines, podman

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "molecule"
CONFIG = ROOT / ".config" / "molecule"

BARE = "MUSTER_BARE"
"""Variable that tells tests/scenario_machines.py to start bare machines."""

SCENARIO_SECONDS = 1500
"""Timeout of one scenario: the longest takes a third of it, beside another one."""

DESTROY_SECONDS = 120
"""Timeout of removing a scenario's machines."""

SEQUENCE = re.compile(r"scenario test matrix: (?P<steps>.+)$")
STARTED = re.compile(r"^INFO +\[\S+ > (?P<action>\w+)\] Executing$")


@dataclass
class Result:
    """The result of one scenario."""

    scenario: str
    log: Path
    code: int = 1
    steps: list[tuple[str, float]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.code == 0 and not self.left

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.steps)

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        steps = "  ".join(f"{name} {seconds:.0f}" for name, seconds in self.steps)
        return f"{self.scenario:<11} {verdict} {self.seconds:4.0f} s   {steps}"


class Scenarios:
    """Running scenarios, so that an interrupt can end them."""

    def __init__(self, *, keep: bool, bare: bool) -> None:
        self.keep = keep
        self.bare = bare
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.interrupted = False

    def run(self, scenario: str) -> Result:
        """Run one scenario to its end."""
        result = Result(scenario, LOGS / f"{scenario}.log")
        with base_image.CACHE.joinpath(f"molecule-{scenario}.lock").open("w") as lock:
            # A scenario's machines have the same names in every run on this machine.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.interrupted:
                self.test(scenario, result)
        return result

    def test(self, scenario: str, result: Result) -> None:
        """Run molecule on one scenario and record the result."""
        configs = [CONFIG / "config.yml"]
        if scenario in stations():
            configs.append(CONFIG / "station.yml")
        elif self.bare and scenario in roles_of_stations():
            configs.append(CONFIG / "isolated.yml")
        command = [
            "molecule",
            *(f"--base-config={path}" for path in configs),
            "test",
            "-s",
            scenario,
        ]
        if self.keep:
            # Molecule then leaves out the first destroy as well, and the machines would not be new.
            destroy(scenario)
            command += ["--destroy", "never"]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment() | ({BARE: "1"} if self.bare else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running[scenario] = process
        if self.interrupted:
            # The signal came before this process was known.
            process_tree.kill(process.pid)
        with killed_after(process, SCENARIO_SECONDS):
            result.steps = list(follow(process, result.log))
            result.code = process.wait()
        del self.running[scenario]
        if not self.keep:
            # Molecule destroys what failed by itself, but not what was killed.
            if result.code < 0 or self.interrupted:
                destroy(scenario)
            try:
                result.left = machines.down(f"mol-{scenario}")
            except podman.MachineError as error:
                print(f"{scenario}: machines can't be removed: {error}", flush=True)
                result.code = 1

    def interrupt(self) -> None:
        """End all running scenarios; their own threads then clean up."""
        self.interrupted = True
        for process in list(self.running.values()):
            process_tree.kill(process.pid)


def environment() -> dict[str, str]:
    """Return the environment of molecule: its tools beside this Python, plain lines."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    plain = {"NO_COLOR": "1", "MOLECULE_COMMAND_BORDERS": "false", "PYTHONUNBUFFERED": "1"}
    return os.environ | plain | {"PATH": path}


@contextmanager
def killed_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill `process` and what it started if the block takes longer than `seconds`."""

    def kill() -> None:
        print(f"{process.args}: not done after {seconds:.0f} s, killed", flush=True)
        process_tree.kill(process.pid)

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def follow(process: subprocess.Popen[str], log: Path) -> Iterator[tuple[str, float]]:
    """Write what molecule prints to `log`; yield each step's name and seconds at its end."""
    sequence: list[str] = []
    name, since = "", 0.0
    assert process.stdout is not None
    with log.open("w", encoding="utf-8") as stream:
        for line in process.stdout:
            stream.write(line)
            stream.flush()
            if match := SEQUENCE.search(line):
                sequence = match["steps"].split(", ")
            elif match := STARTED.match(line):
                if name:
                    yield name, time.monotonic() - since
                name, since = name_of(sequence, match["action"]), time.monotonic()
    if name:
        yield name, time.monotonic() - since


def name_of(sequence: list[str], action: str) -> str:
    """Take the step of `action` off the sequence and return its name: verify, or what it verifies.

    After a failure molecule cleans up, with actions that are not next in the sequence.
    """
    if sequence and sequence[0].split()[0] == action:
        return Path(sequence.pop(0)).name
    return action


def destroy(scenario: str) -> None:
    """Remove the machines of a scenario and molecule's state of them; print why if that failed."""
    with (
        subprocess.Popen(
            ["molecule", "destroy", "-s", scenario],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process,
        killed_after(process, DESTROY_SECONDS),
    ):
        said, _ = process.communicate()
    if process.returncode != 0:
        print(f"molecule destroy -s {scenario} failed:\n{said}", flush=True)


def scenarios() -> list[str]:
    """Return the names of all scenarios."""
    return sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml"))


def stations() -> list[str]:
    """Return the names of the scenarios of several roles, those of most roles first."""
    names = [name for name in scenarios() if not (ROOT / "roles" / name).exists()]
    return sorted(names, key=lambda name: -len(roles_of(name)))


def roles_of(scenario: str) -> set[str]:
    """Return the roles whose tests a scenario runs."""
    text = (ROOT / "molecule" / scenario / "molecule.yml").read_text(encoding="utf-8")
    return set(re.findall(r"tests/roles/test_(\w+)\.py", text))


def roles_of_stations() -> set[str]:
    """Return the roles whose tests a station runs."""
    return set[str]().union(*map(roles_of, stations()))


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenario", nargs="*", help="role or station (all stations if none is given)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="scenarios at a time (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the machines for a look")
    parser.add_argument(
        "--bare", action="store_true", help="on machines without what the roles install"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - set(scenarios()):
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(scenarios())}")

    for folder in (LOGS, base_image.CACHE):
        folder.mkdir(parents=True, exist_ok=True)
    # A CI job that is cancelled gets SIGTERM, and a background job would ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    begin = time.monotonic()
    try:
        podman.check_machine()
        made_by = base_image if arguments.bare else installed
        for release in base_image.RELEASES:
            print(f"image {release} (made once, in some two minutes)", flush=True)
            print(f"image {release}: {made_by.ensure(release)}", flush=True)
    except KeyboardInterrupt:
        return 130
    except (podman.MachineError, BundleError) as error:
        print(f"error: {error}")
        return 1

    wanted = arguments.scenario or stations()
    runs = Scenarios(keep=arguments.keep, bare=arguments.bare)
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        pending = [pool.submit(runs.run, name) for name in wanted]
        try:
            for done in as_completed(pending):
                results.append(done.result())
                report(results[-1])
        except KeyboardInterrupt:
            print("interrupted; removing the machines", flush=True)
            runs.interrupt()
            return 130
    summarize(results, time.monotonic() - begin)
    return 0 if all(result.passed for result in results) else 1


def report(result: Result) -> None:
    """Print one scenario's line; all of its log if it failed."""
    if not result.passed:
        print(f"--- {result.scenario}: {result.log.relative_to(ROOT)}")
        print(result.log.read_text(encoding="utf-8"))
        if result.left:
            print(f"destroy left {', '.join(result.left)}; now removed")
    print(result, flush=True)


def summarize(results: list[Result], seconds: float) -> None:
    """Print the table of all scenarios, slowest first."""
    print("\nmolecule, seconds per step")
    for result in sorted(results, key=lambda result: -result.seconds):
        print(result)
    failed = [result.scenario for result in results if not result.passed]
    print(
        f"{len(results)} scenarios in {seconds:.0f} s, "
        + (f"failed: {', '.join(sorted(failed))}" if failed else "all passed")
    )


if __name__ == "__main__":
    sys.exit(main())
