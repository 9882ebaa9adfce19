# SPDX-License-Identifier: Apache-2.0
"""A step of a job, and this task in it, from the variables that srun and slurmstepd set."""

from collections.abc import Mapping
from dataclasses import dataclass

from muster_launch import hostlists
from muster_launch.errors import LaunchError

_FIRST_OF_SLURM = 0xFFFFFFF0
"""SLURM's own steps (the script, the shell of salloc) have numbers from here on (slurm.h)."""


@dataclass(frozen=True)
class Step:
    """The tasks that srun started together."""

    job: int
    number: int
    """0 and up; 0 too for a script that has no step of srun's."""
    started_by_srun: bool
    nodes: tuple[str, ...]
    """SLURM's names; task 0 is on the first."""
    tasks_on: tuple[int, ...]
    """How many tasks each node has."""
    distribution: str
    """`--distribution`; empty: SLURM's own choice, which is `block`."""
    plane: int
    """Tasks that the distribution `plane` puts on a node at a time."""
    rank: int
    node_rank: int
    local_rank: int

    @property
    def size(self) -> int:
        """How many tasks there are."""
        return sum(self.tasks_on)

    @property
    def local_size(self) -> int:
        """How many of them are on this node."""
        return self.tasks_on[self.node_rank]

    @property
    def node(self) -> str:
        """The name of this node."""
        return self.nodes[self.node_rank]

    def places(self) -> list[tuple[int, int]] | None:
        """Return the node and the number on that node of each task, in the order of ranks.

        None: the distribution is one that can't be followed, since it is not in the variables.
        """
        kind = self.distribution.partition(":")[0].lower()
        # `arbitrary` follows a file of the user's.
        known = {"cyclic": 1, "plane": self.plane, "arbitrary": 0}
        chunk = known.get(kind, max(self.tasks_on))
        if chunk < 1:
            return None
        placed = [0] * len(self.nodes)
        found: list[tuple[int, int]] = []
        while len(found) < self.size:
            for node, tasks in enumerate(self.tasks_on):
                for _ in range(min(chunk, tasks - placed[node])):
                    found.append((node, placed[node]))
                    placed[node] += 1
        is_so = found[self.rank] == (self.node_rank, self.local_rank)
        return found if is_so else None


def step_of(environment: Mapping[str, str]) -> Step:
    """Return the step that this process is a task of.

    Raises:
        LaunchError: it is in no job, or in a job of several tasks and not started by srun.

    """
    if "SLURM_JOB_ID" not in environment:
        raise LaunchError(
            "this is no job: type `srun launch COMMAND` in a script for sbatch, or after salloc"
        )
    number = _number(environment, "SLURM_STEP_ID", default=_FIRST_OF_SLURM)
    if number >= _FIRST_OF_SLURM:
        return _alone(environment)
    nodes = tuple(hostlists.expand(_word(environment, "SLURM_STEP_NODELIST")))
    tasks_on = tuple(hostlists.repeated(_word(environment, "SLURM_STEP_TASKS_PER_NODE")))
    step = Step(
        job=_number(environment, "SLURM_JOB_ID"),
        number=number,
        started_by_srun=True,
        nodes=nodes,
        tasks_on=tasks_on,
        distribution=environment.get("SLURM_DISTRIBUTION", ""),
        plane=_number(environment, "SLURM_DIST_PLANESIZE", default=0),
        rank=_number(environment, "SLURM_PROCID"),
        node_rank=_number(environment, "SLURM_NODEID"),
        local_rank=_number(environment, "SLURM_LOCALID"),
    )
    fits = len(nodes) == len(tasks_on) and step.node_rank < len(nodes) and step.rank < step.size
    # A job that was submitted within another one has that one's variables too. In a step of several
    # components of a heterogeneous job the nodes may have another order than the tasks.
    if not fits or environment.get("SLURMD_NODENAME", step.node) != step.node:
        raise LaunchError(
            f"SLURM's variables of step {step.job}.{step.number} don't fit together: start the "
            "program with srun alone, each component of a heterogeneous job with a srun of its own "
            "(--het-group), and submit jobs outside of other jobs"
        )
    return step


def _alone(environment: Mapping[str, str]) -> Step:
    """Return the one task of a job that has no more: of a script, or of the shell of salloc."""
    tasks = _number(environment, "SLURM_NTASKS", default=1)
    nodes = hostlists.expand(_word(environment, "SLURM_JOB_NODELIST"))
    if tasks > 1 or len(nodes) > 1:
        raise LaunchError(
            f"the job has {max(tasks, len(nodes))} tasks or nodes and this is only one: type "
            "`srun launch COMMAND`, which starts all"
        )
    return Step(
        job=_number(environment, "SLURM_JOB_ID"),
        number=0,
        started_by_srun=False,
        nodes=(nodes[0],),
        tasks_on=(1,),
        distribution="",
        plane=0,
        rank=0,
        node_rank=0,
        local_rank=0,
    )


def _word(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise LaunchError(f"{name} is not set; start the program with srun, which sets it")
    return value


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not environment.get(name):
        return default
    value = _word(environment, name)
    if not value.isascii() or not value.isdigit():
        raise LaunchError(
            f"{name} is {value!r}, no number; start the program with srun, which sets it"
        )
    return int(value)
