"""The clusters that the tests of this folder share: site.yml raises each once."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import process_tree
import psutil
import pytest
from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)
from ruamel.yaml import YAML
from waiting import until

from muster_sandbox.containers import machines
from muster_sandbox.containers.podman import check_machine
from muster_sandbox.demo.instance import Instance
from muster_sandbox.demo.tour import Session

ROOT = Path(__file__).parents[2]
PLAYBOOK = str(Path(sys.executable).with_name("ansible-playbook"))
RUN_SECONDS = 1800
"""Timeout of a playbook: one that builds TensorFlow takes many minutes on two busy cores."""

RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


CGROUP = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
"""The cgroup version that the kernel mounts, which decides SLURM's plugin."""


def pytest_report_header() -> str:
    """Print the cgroup version: SLURM's code for the other one is not tested."""
    how = {"v1": "the kernel's devices controller", "v2": "eBPF programs"}[CGROUP]
    return f"cgroup {CGROUP}: SLURM's plugin cgroup/{CGROUP} keeps jobs apart, devices by {how}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have measured."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if report.when == "call":
                terminalreporter.write_line(f"{name}: {value}")


@dataclass(frozen=True)
class Run:
    """The output of a run of site.yml."""

    code: int
    output: str

    @property
    def changed(self) -> dict[str, int]:
        """Changed tasks by host; hosts without a change are left out."""
        return {row[0]: int(row[2]) for row in RECAP.findall(self.output) if int(row[2])}

    @property
    def hosts(self) -> set[str]:
        """Hosts that ran any task."""
        return {row[0] for row in RECAP.findall(self.output)}

    @property
    def changed_tasks(self) -> list[str]:
        """Titles of the tasks that changed something, as `role : title [host]`."""
        changed, title = [], ""
        for line in self.output.splitlines():
            if match := re.match(r"TASK \[(.*)\]", line):
                title = match[1]
            elif match := re.match(r"changed: \[([^\]]+)\]", line):
                changed.append(f"{title} [{match[1].split(' -> ')[0]}]")
        return changed


@dataclass(frozen=True)
class Lab:
    """A running cluster."""

    instance: Instance

    @cached_property
    def fleet(self) -> machines.Fleet:
        """Its containers, without those that a test adds later. Ansible is asked once."""
        return self.instance.fleet()

    def play(
        self,
        *options: str,
        playbook: str = "site.yml",
        environment: dict[str, str] | None = None,
    ) -> Run:
        """Run a playbook to its end."""
        done = subprocess.run(
            [PLAYBOOK, "-i", str(self.instance.folder), f"ansible/{playbook}", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
            env=os.environ | {"ANSIBLE_NOCOLOR": "1"} | (environment or {}),
        )
        return Run(done.returncode, done.stdout + done.stderr)

    def kill_play_in(self, task: str, *options: str) -> None:
        """Run site.yml and SIGKILL it, workers included, while a host runs the module of `task`."""
        seen = []
        with subprocess.Popen(
            [PLAYBOOK, "-i", str(self.instance.folder), "ansible/site.yml", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"},
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    seen.append(line)
                    if line.startswith("TASK [") and task in line:
                        until(lambda: runs_a_module(process.pid), f"a host runs {task!r}", 30)
                        break
            finally:
                process_tree.kill(process.pid)
            rest = process.stdout.read()
        assert process.returncode == -signal.SIGKILL, "".join(seen[-40:])
        assert "TASK [" not in rest, f"it was killed after {task!r}:\n{rest}"

    def on(self, host: str, command: str, *, check: bool = True, timeout: float = 60) -> str:
        """Run a shell command on `host` as root and return its output, errors included."""
        done = subprocess.run(
            ["ssh", "-F", str(self.fleet.ssh_config), host, command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{host}: {command}: {done.stdout}"
        return done.stdout

    def change(self, edit: Callable[[Any], None]) -> None:
        """Let `edit` change the definition, a mapping, in place; the rest of its text stays."""
        yaml = YAML()
        yaml.width = 4096
        yaml.preserve_quotes = True
        document = yaml.load(self.definition.read_text(encoding="utf-8"))
        edit(document["cluster"])
        yaml.dump(document, self.definition)

    @property
    def ada(self) -> Session:
        """ada's session on the access node."""
        return Session(self.fleet)

    def container(self, host: str) -> str:
        """Return the name of the container of `host`."""
        return self.fleet.container(host)

    @property
    def definition(self) -> Path:
        """The definition's file."""
        return self.instance.folder / "group_vars" / "all" / "cluster.yml"


def runs_a_module(pid: int) -> bool:
    """Whether a worker of an ansible-playbook waits for a module: pipelined, that is one ssh."""
    with suppress(psutil.NoSuchProcess):
        return any(p.name() == "ssh" for p in psutil.Process(pid).children(recursive=True))
    return False


def raise_lab(template: Path, name: str, release: str, subnet: str) -> Iterator[Lab]:
    """Remove an earlier run's remains, raise a cluster from `template`, remove it at the end."""
    check_machine()
    instance = Instance(ROOT / "build" / name)
    machines.down(name)
    machines.remove_folder(instance.folder)
    lab = Lab(instance)
    try:
        instance.create(template, release, subnet=subnet)
        machines.up(lab.fleet)
        yield lab
    finally:
        machines.down(name)
        if "MUSTER_KEEP" not in os.environ:
            machines.remove_folder(instance.folder)


def add_administrator(lab: Lab) -> None:
    """Write the administrator `chief`, with the key chief_key, into the definition."""
    machines.make_key(lab.fleet.folder / "chief_key")
    key = (lab.fleet.folder / "chief_key.pub").read_text(encoding="utf-8").strip()
    text = lab.definition.read_text(encoding="utf-8")
    assert text.count("    people:\n") == 1
    chief = f'      chief: {{uid: 20900, admin: true, ssh_keys: ["{key}"]}}\n'
    new = text.replace("    people:\n", f"    people:\n{chief}")
    lab.definition.write_text(new, encoding="utf-8")


@pytest.fixture(scope="session")
def fresh_lab() -> Iterator[Lab]:
    """The machines of the demo with an administrator, not configured yet."""
    template = ROOT / "inventories" / "demo"
    for lab in raise_lab(template, "muster-test", "bookworm", "10.214.43.0/24"):
        add_administrator(lab)
        yield lab


@pytest.fixture(scope="session")
def lab(fresh_lab: Lab) -> Lab:
    """The demo's cluster on Debian 12, raised by site.yml."""
    run = fresh_lab.play()
    assert run.code == 0, run.output[-6000:]
    return fresh_lab


@pytest.fixture(scope="session")
def split() -> Iterator[Lab]:
    """Controller, database, storage and login on machines of their own, Debian 13.

    Bare machines end a run in check mode, too.
    """
    template = ROOT / "tests/live/inventories/split"
    for lab in raise_lab(template, "muster-split", "trixie", "10.214.44.0/24"):
        add_administrator(lab)
        check = lab.play("--check")
        assert check.code == 0, check.output[-6000:]
        run = lab.play()
        assert run.code == 0, run.output[-6000:]
        yield lab


RUNS = "cat again.out 2>/dev/null || true"
"""Prints a line for each start of the job `requeued`, which makes the file."""


@pytest.fixture(scope="session")
def requeued(lab: Lab) -> Iterator[str]:
    """A job that ran, left a file in its scratch, and was requeued.

    It does not start again before two minutes have passed: until then slurmd knows the job and runs
    no prolog for it. Other tests run meanwhile.
    """
    ada = lab.ada
    script = "ls -A $TMPDIR >>again.out; echo run >>again.out; touch $TMPDIR/left; sleep 300"
    ada.run("rm -f again.out")
    job = ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test --mem=50M --time=5 -w lab-cpu-01 --requeue"
        f" -o /dev/null --wrap '{script}'"
    ).strip()
    try:
        until(lambda: ada.run(RUNS) == "run\n", "it runs")
        lab.on("lab-access", f"scontrol requeue {job}")
        yield job
    finally:
        ada.run(f"scancel {job}")
