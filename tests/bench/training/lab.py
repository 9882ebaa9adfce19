"""The lab of the training table: the demo's, with as many CPU nodes as there are cores for."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from muster_sandbox.demo.instance import Instance
from muster_sandbox.demo.showing import TourError
from muster_sandbox.demo.tour import Session

from .table import Result, TableError, parse, progress

HERE = Path(__file__).parent
SUBNET = "10.214.49.0/24"
FIRST_ADDRESS = 21
POLL_S = 2.0
JOB_SECONDS = 3600
BUSY = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")
SWITCHES = {
    "threads": "threads: one for each CPU of the machine, not of the task",
    "placement": "placement: tasks bound to no cores",
    "interface": "interface: Gloo looks for it",
    "all": "all three",
}
"""What can be switched off, by the word of training.sbatch."""
NOT_HERE = {
    "packed environment": "not measured: the lab's machines are containers and can't mount one",
}


def nodes_for(cpus: int, cores: int, wanted: int | None) -> int:
    """Return how many nodes have cores of their own.

    Args:
        cpus: Of the machine.
        cores: Of each node.
        wanted: What the user asks for; None: as many as fit, ten at most.

    Raises:
        TableError: not even one fits, or not so many.

    """
    fit = cpus // cores
    if fit < 1 or (wanted or 1) > fit:
        raise TableError(
            f"{wanted or 1} nodes with {cores} cores each do not fit on {cpus} CPUs: ask for "
            + (f"--nodes {fit} or less" if fit else f"--cores {cpus} or less")
        )
    return wanted or min(fit, 10)


def sizes(nodes: int) -> list[int]:
    """Return the numbers of nodes to measure: those of the original's table, and the largest."""
    return sorted({size for size in (1, 2, 3, 4, 6, 8, 10) if size <= nodes} | {nodes})


def adapt(definition: Any, hosts: Any, torch: Mapping[str, Any], *, nodes: int, cpus: int) -> None:
    """Change the demo's definition and hosts, mappings, in place.

    All nodes have all CPUs of the machine; training.sbatch gives each some of its own.
    """
    definition["nodes"] = {"cpu": {"sockets": 1, "cores_per_socket": cpus, "memory_mib": 2048}}
    definition["partitions"].pop("ml-gpu")
    definition["software"]["modules"].setdefault("libs/python/torch", {}).update(torch)
    prefix = SUBNET.rpartition(".")[0]
    names = [f"lab-cpu-{number:02}" for number in range(1, nodes + 1)]
    hosts["all"]["children"]["compute"]["children"] = {
        "cpu": {
            "vars": {"container_cores": cpus},
            "hosts": {
                name: {"ansible_host": f"{prefix}.{FIRST_ADDRESS + number}"}
                for number, name in enumerate(names)
            },
        }
    }


def adapt_files(instance: Instance, torch: Mapping[str, Any], *, nodes: int, cpus: int) -> None:
    """Change the files of a copy of the demo's inventory."""
    yaml = YAML()
    yaml.width = 4096
    yaml.preserve_quotes = True
    paths = (instance.folder / "group_vars/all/cluster.yml", instance.folder / "hosts.yml")
    definition, hosts = (yaml.load(path.read_text(encoding="utf-8")) for path in paths)
    adapt(definition["cluster"], hosts, torch, nodes=nodes, cpus=cpus)
    for path, data in zip(paths, (definition, hosts), strict=True):
        yaml.dump(data, path)


@dataclass(frozen=True)
class Lab:
    """The lab that is up, and how its jobs are submitted."""

    session: Session
    cpus: int
    cores: int
    tell: Callable[[str], None]

    def prepare(self) -> None:
        """Give ada the program and its script.

        Raises:
            TableError: the lab does not take them.

        """
        try:
            self.session.run("mkdir -p training")
            for name in ("train.py", "training.sbatch"):
                text = (HERE / name).read_text(encoding="utf-8")
                self.session.run(f"cat >training/{name}", stdin=text)
        except TourError as error:
            raise TableError(str(error)) from error

    def train(self, nodes: int, off: str = "nothing", *options: str) -> Result:
        """Run a job to its end; return what it has measured.

        Raises:
            TableError: it has failed, or takes too long.

        """
        asked = f"--nodes={nodes} --cpus-per-task={self.cpus}"
        words = " ".join((f"{self.cores}", off, *options))
        job = ""
        try:
            job = self.session.run(
                f"cd training && sbatch --parsable {asked} training.sbatch {words}"
            ).strip()
            output = self._ended(job)
        except TourError as error:
            if job:
                # The next one needs its nodes.
                with suppress(TourError):
                    self.session.run(f"scancel {job}")
            raise TableError(str(error)) from error
        return parse(output)

    def _ended(self, job: str) -> str:
        """Return what a job has written, when it is over; meanwhile say how far it is."""
        begun, told = time.monotonic(), 0
        while time.monotonic() - begun < JOB_SECONDS:
            state = self.session.run(f"sacct -nXP -j {job} -o State").strip()
            # The file is not there before the job starts; what never comes ends with JOB_SECONDS.
            output = self.session.run(f"cat training/training-{job}.out 2>/dev/null || true")
            for line in output.splitlines():
                done = progress(line)
                if done and done[0] > told:
                    told = done[0]
                    self.tell(f"  job {job}: epoch {told} after {done[1]:.1f} s")
            if state and not state.startswith(BUSY):
                if state.startswith("COMPLETED"):
                    return output
                raise TableError(f"job {job} ended as {state}: {output.strip()[-500:]}")
            time.sleep(POLL_S)
        self.session.run(f"scancel {job}")
        raise TableError(f"job {job} did not end within {JOB_SECONDS} s")


def commit(root: Path) -> str:
    """Return the commit of the checkout, with a plus if files have changed since."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout.strip() or "an unknown commit"


def load() -> str:
    """Return the load of the machine now, and its processors."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
