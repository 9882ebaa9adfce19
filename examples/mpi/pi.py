#!/usr/bin/env python3
"""Estimate pi on all tasks of a job with MPI: srun --mpi=pmix python3 pi.py [--points N].

Each task throws points into a square and counts those within the circle; an all-reduce adds them.
"""

import argparse
import math
import os
import platform
import sys

import numpy  # type: ignore[import-not-found, unused-ignore]

CHUNK = 1_000_000


def hits(source: "numpy.random.Generator", points: int) -> int:
    """Return how many of so many random points of a square are within the circle."""
    found = 0
    for begin in range(0, points, CHUNK):
        x, y = source.random((2, min(CHUNK, points - begin)))
        found += int((x * x + y * y <= 1).sum())
    return found


def main() -> int:
    """Count, add, and print; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=10_000_000, help="of each task")
    points = parser.parse_args().points
    started = int(os.environ.get("SLURM_NTASKS", "1"))
    if started > 1 and "PMIX_RANK" not in os.environ:
        # Here MPI would end with an error that names neither SLURM nor PMIx.
        print(
            f"pi.py: MPI can't find the {started} tasks: start it with srun --mpi=pmix "
            "(srun --mpi=list says whether SLURM has it)",
            file=sys.stderr,
        )
        return 1
    # This starts MPI.
    from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    everybody = MPI.COMM_WORLD
    rank, size = everybody.Get_rank(), everybody.Get_size()
    inside = everybody.allreduce(hits(numpy.random.default_rng(rank), points))
    nodes = everybody.gather(platform.node())
    if rank == 0:
        estimate = 4 * inside / (size * points)
        print(f"{size} tasks on {len(set(nodes))} nodes: pi is about {estimate:.5f}, ", end="")
        print(f"wrong by {abs(estimate - math.pi):.5f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
