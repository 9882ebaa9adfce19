"""SchedulerParameters: how far SLURM plans ahead, and how eagerly it asks for nodes."""

from collections.abc import Iterable
from typing import Literal

from muster.definition.definition import Definition
from muster.definition.schema.times import seconds

_BACKFILL_DEFAULT_MINUTES = 1440
_BACKFILL_LONGEST_MINUTES = 43200

# https://slurm.schedmd.com/slurm.conf.html#OPT_SchedulerParameters has what each means.
# Measured with 5,000 waiting jobs: docs/limits.md.
# A pass of backfill goes on where it let other requests in, also if jobs came or ended meanwhile;
# otherwise it begins again at the next, and never reaches the end of a queue.
_GOES_ON = "bf_continue"
# Microseconds after which a pass lets other requests in; with the default of 2 s sbatch takes as
# long.
_YIELDS = "bf_yield_interval=500000"
_TRIED = [
    # By default a pass ends after 500 jobs: those of one person, and nobody behind them starts.
    "bf_max_job_test=1000",
    # The jobs of each person that a pass looks at. Hundreds of one person that can't start cost as
    # much as those of ten people.
    "bf_max_job_user=50",
]
# Of hundreds of short jobs a minute, which may all be one person's: with 50 in each 30 s backfill
# would start 100 a minute behind a job that has to wait.
_TRIED_OF_SHORT_JOBS = ["bf_max_job_test=2000", "bf_max_job_user=200"]
# Nodes are requested at once, and by few calls of ResumeProgram. A thousand jobs that each need one
# of ten thousand nodes cost select/cons_tres some ten seconds of CPU with any settings; these
# decide how it is divided into passes. Measured: docs/figures.md.
_ELASTIC = [
    # The default lets a batch job wait 3 s for others.
    "batch_sched_delay=0",
    # In microseconds; the default of 2 runs the scheduler for each of a thousand nodes that
    # register.
    "sched_min_interval=100000",
    # Seconds between passes over the whole queue; with the default of 60 the rest of a burst is
    # left to backfill.
    "sched_interval=2",
    # Seconds that a pass may take, while everything else waits; the default of 2 splits a burst
    # into many calls of ResumeProgram. Clients wait for MessageTimeout, 60 s.
    "max_sched_time=5",
    # The tasks of a job array count one by one; the default is 100.
    "default_queue_depth=1000",
]


def profile(definition: Definition) -> Literal["elastic", "throughput"] | None:
    """Return what the scheduler is tuned for; None: SLURM's own settings."""
    cluster = definition.cluster
    return cluster.scheduling.profile or ("elastic" if cluster.cloud else None)


def scheduler_options(definition: Definition) -> list[str]:
    """Return the entries of SchedulerParameters, none of them twice."""
    cluster = definition.cluster
    # A job that the prolog of a broken node refused starts elsewhere; held, it would wait for
    # somebody to release it.
    options = ["nohold_on_prolog_fail"]
    chosen = profile(definition)
    options += [_GOES_ON, *(_TRIED_OF_SHORT_JOBS if chosen == "throughput" else _TRIED), _YIELDS]
    options += _window(partition.max_time for partition in cluster.partitions.values())
    if chosen == "elastic":
        options += _ELASTIC
    elif chosen == "throughput":
        options += _throughput(cluster.slurm_version)
    if cluster.cloud:
        # A job starts when all of its nodes are up.
        options += ["salloc_wait_nodes", "sbatch_wait_nodes"]
    return list(dict.fromkeys(options))


def _throughput(version: str) -> list[str]:
    """Return options for hundreds of short jobs a minute: one pass schedules many.

    https://slurm.schedmd.com/high_throughput.html
    """
    return [
        # `defer` would make srun wait too, so earlier releases have only the delay.
        *(["defer_batch"] if version >= "23.02" else []),
        "batch_sched_delay=5",
        # Microseconds between two passes, so that jobs that end together cost one.
        "sched_min_interval=2000000",
        "default_queue_depth=1000",
        # Jobs of a full partition count in that depth; this pass also takes the jobs after them.
        "sched_interval=10",
        # Planning stops while so many requests wait for an answer.
        "max_rpc_cnt=150",
    ]


def _window(max_times: Iterable[str]) -> list[str]:
    """Return options for jobs that are longer than the day that backfill looks ahead by default.

    Jobs beyond that window can starve (slurm.conf(5), bf_window); the resolution grows with it, so
    that planning costs the same. It is 30 days at most: of jobs without a limit nobody knows more.
    """
    longest = max((seconds(text) / 60 for text in max_times), default=0)
    window = int(min(longest, _BACKFILL_LONGEST_MINUTES))
    if window <= _BACKFILL_DEFAULT_MINUTES:
        return []
    resolution = 60 * -(-window // _BACKFILL_DEFAULT_MINUTES)
    return [f"bf_window={window}", f"bf_resolution={resolution}"]
