#!/usr/bin/env python3
"""Normalise the data with Dask, on all nodes of the job: srun python3 prepare.py FOLDER.

Each task of the step is a worker of Dask's; the first one is the scheduler too, and has the
program. Dask runs what it is sent, and asks nobody for a name: so all of them speak TLS, with a key
that is made for this step, in a file that only its owner reads, and its web pages are off.
"""

import asyncio
import json
import logging
import math
import os
import random
import socket
import time
from pathlib import Path

import dask  # type: ignore[import-not-found]
from distributed import (  # type: ignore[import-not-found]
    Client,
    Scheduler,
    Security,
    Worker,
)
from points import PARTS, Point, Sample, StepError, part, run, write

COUNT = 12
"""Parts of the data; each is a task of Dask's."""
HELD_OUT = 2
"""The last ones are for evaluate.py."""
SIZE = 500
FEATURES = 10
MEET_S = 120
"""Seconds in which all workers must have come."""
SHARE = 0.8
"""Of the job's memory on a node, for what a worker keeps."""


# -- your own work takes the place of this --------------------------------------------------------


def raw(number: int) -> list[Sample]:
    """Return a part of the raw data; your own program reads a file here."""
    plane = random.Random(0)  # noqa: S311 (no secret)
    weights = [plane.gauss(0, 1) for _ in range(FEATURES)]
    source = random.Random(number + 1)  # noqa: S311
    found = []
    for _ in range(SIZE):
        point = [source.gauss(0, 1) for _ in range(FEATURES)]
        side = int(sum(a * b for a, b in zip(point, weights, strict=True)) > 0)
        # The features have different units.
        found.append(([5 * n + 2**n * value for n, value in enumerate(point)], side))
    return found


def sums(number: int) -> tuple[int, Point, Point]:
    """Return the number of points of a part, and the sums of their values and of the squares."""
    points = [point for point, _ in raw(number)]
    columns = list(zip(*points, strict=True))
    return len(points), [sum(c) for c in columns], [sum(v * v for v in c) for c in columns]


def normalise(number: int, means: Point, deviations: Point, folder: str) -> str:
    """Write a part in which each feature has mean 0 and deviation 1; return where it was done."""
    samples = [
        ([(v - m) / d for v, m, d in zip(point, means, deviations, strict=True)], side)
        for point, side in raw(number)
    ]
    write(part(Path(folder), number), samples)
    return os.uname().nodename


async def program(client: Client, folder: Path) -> None:
    """Do the work: `client` sends it to all workers."""
    found = await client.gather(client.map(sums, range(COUNT)))
    count = sum(size for size, _, _ in found)
    means = [sum(column) / count for column in zip(*(s for _, s, _ in found), strict=True)]
    squares = [sum(column) / count for column in zip(*(s for _, _, s in found), strict=True)]
    deviations = [math.sqrt(s - m * m) for s, m in zip(squares, means, strict=True)]
    # It writes: not to be taken for what was computed before.
    written = client.map(
        normalise,
        range(COUNT),
        means=means,
        deviations=deviations,
        folder=str(folder.resolve()),
        pure=False,
    )
    nodes = await client.gather(written)
    training, held_out = list(range(COUNT - HELD_OUT)), list(range(COUNT - HELD_OUT, COUNT))
    write(folder / PARTS, {"training": training, "held_out": held_out})
    shares = ", ".join(f"{nodes.count(node)} on {node}" for node in sorted(set(nodes)))
    print(f"{COUNT} parts with {count} points: {shares}", flush=True)


# -- Dask in a step of a job ----------------------------------------------------------------------


def address() -> str:
    """Return this node's address on the cluster's network.

    Raises:
        StepError: it has none that other nodes reach.

    """
    name = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    found = socket.gethostbyname(name)
    if found.startswith("127.") and int(os.environ.get("SLURM_NNODES", "1")) > 1:
        raise StepError(
            f"{name} is {found} on {name} itself, which others don't reach: tell an "
            "administrator (/etc/hosts)"
        )
    return found


def worker(scheduler: str, security: Security) -> Worker:
    """Return a worker with the CPUs and the memory of this task."""
    memory = int(os.environ.get("SLURM_MEM_PER_NODE", "0")) * 2**20
    return Worker(
        scheduler,
        host=address(),
        nthreads=int(os.environ.get("SLURM_CPUS_PER_TASK", "1")),
        memory_limit=int(memory * SHARE) or "auto",
        security=security,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
        local_directory=os.environ.get("TMPDIR", "/tmp"),  # noqa: S108 (it makes its own folder)
    )


def tls(cert: str, key: str) -> Security:
    """Return what lets in those that have the key, and nobody else."""
    names = ("scheduler", "worker", "client")
    pairs = {
        f"tls_{name}_{what}": text
        for name in names
        for what, text in (("cert", cert), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=cert, **pairs)


async def lead(folder: Path, meeting: Path, tasks: int) -> None:
    """Be the scheduler and a worker, and run the program when all workers are there."""
    made = Security.temporary()
    cert, key = made.tls_scheduler_cert, made.tls_scheduler_key
    security = tls(cert, key)
    options = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with Scheduler(host=address(), port=0, security=security, protocol="tls", **options) as s:
        new = meeting.with_suffix(".new")
        with open(new, "x", encoding="utf-8", opener=for_the_owner) as file:
            json.dump({"address": s.address, "cert": cert, "key": key}, file)
        new.replace(meeting)
        try:
            async with (
                worker(s.address, security),
                Client(s.address, security=security, asynchronous=True) as client,
            ):
                try:
                    await client.wait_for_workers(tasks, timeout=MEET_S)
                except TimeoutError as error:
                    raise StepError(
                        f"not all of {tasks} workers have come within {MEET_S} s: nodes don't "
                        "reach each other, or the step's output says why one ended"
                    ) from error
                await program(client, folder)
        finally:
            meeting.unlink(missing_ok=True)


def for_the_owner(path: str, flags: int) -> int:
    """Open a file that nobody else reads."""
    return os.open(path, flags, 0o600)


async def follow(meeting: Path) -> None:
    """Be a worker until the scheduler ends it.

    Raises:
        StepError: there is no scheduler.

    """
    deadline = time.monotonic() + MEET_S
    while not meeting.exists():
        if time.monotonic() > deadline:
            raise StepError(
                f"{meeting} is not there after {MEET_S} s: the first task did not start, or this "
                "node does not see its folder"
            )
        await asyncio.sleep(0.2)
    found = json.loads(meeting.read_text(encoding="utf-8"))
    async with worker(found["address"], tls(found["cert"], found["key"])) as one:
        await one.finished()


def prepare(folder: Path) -> None:
    """Be the task of the step that SLURM says this is.

    Raises:
        StepError: it can't be done.
        OSError: a file can't be written.

    """
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS")
    if not all(name in os.environ for name in names):
        raise StepError("this is no step of a job: type sbatch prepare.sbatch")
    job, step, rank, tasks = (os.environ[name] for name in names)
    again = os.environ.get("SLURM_RESTART_COUNT", "0")
    folder.mkdir(parents=True, exist_ok=True)
    meeting = folder / f".dask-{job}-{again}-{step}"
    # What it does is of interest to its authors; the step's output is for what goes wrong.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    # No web pages: they ask nobody for a name.
    off: dict[str, list[str]] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with dask.config.set(off):
        asyncio.run(lead(folder, meeting, int(tasks)) if rank == "0" else follow(meeting))


if __name__ == "__main__":
    raise SystemExit(run(prepare))
