"""Limits of jobs: QoS, and what accounts and their users may have."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.definition.schema.base import Mebibytes, Model, SlurmTime

# slurm.h: numbers from INFINITE - 1 on mean "no limit" and "not given".
MOST_COUNT = 2**32 - 3
MOST_SHARES = 2**31 - 2
"""slurmdb.h: one more, SLURMDB_FS_USE_PARENT, means those of the account above."""

Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Shares = Annotated[int, Field(ge=0, le=MOST_SHARES)]


class Tres(Model):
    """Amounts of what jobs use (TRES); null: no limit, 0: none at all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gpu": 4}]})

    cpu: Annotated[Count | None, Field(description="CPUs, as SLURM counts them.")] = None
    memory_mib: Annotated[Mebibytes | None, Field(ge=0, description="Memory (`mem`).")] = None
    node: Annotated[Count | None, Field(description="Nodes.")] = None
    gpu: Annotated[Count | None, Field(description="GPUs of all types (`gres/gpu`).")] = None
    gpu_types: Annotated[
        dict[str, Count],
        Field(
            description="GPUs by type (`gres/gpu:TYPE`). Jobs that ask for no type are not counted "
            "here: limit `gpu` too.",
            examples=[{"h100": 2}],
        ),
    ] = {}
    billing: Annotated[
        Count | None, Field(description="Billing units: `scheduling.billing_weights`.")
    ] = None


class TresMinutes(Model):
    """Amounts of TRES times the minutes that running jobs may still use them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gpu": 5760}]})

    cpu: Annotated[Count | None, Field(description="CPU minutes.")] = None
    gpu: Annotated[Count | None, Field(description="GPU minutes: 5760 are 4 GPUs for a day.")] = (
        None
    )
    node: Annotated[Count | None, Field(description="Node minutes.")] = None
    billing: Annotated[Count | None, Field(description="Minutes of billing units.")] = None


class Association(Model):
    """What jobs of an account, or of one of its users, may have; null: no limit."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_jobs": 4}]})

    fairshare: Annotated[
        Shares | None,
        Field(
            description="Share of the account, relative to its other users; null: what it is, "
            "which is 1 where nobody changed it."
        ),
    ] = None
    qos: Annotated[
        list[str] | None,
        Field(
            description="QoS that jobs may use (`--qos`); null: those of the account above, at the "
            "top `normal`.",
            examples=[["normal", "long"]],
        ),
    ] = None
    default_qos: Annotated[
        str | None,
        Field(
            description="QoS of jobs that name none, one of `qos`; null: that of the account "
            "above, at the top `normal`, or the only one that `qos` has."
        ),
    ] = None
    max_wall: Annotated[
        SlurmTime | None,
        Field(
            description="Longest time of a job (`MaxWall`), and the time of one that asks for "
            "none in a partition without `default_time`; `UNLIMITED` is as null."
        ),
    ] = None
    max_jobs: Annotated[
        Count | None, Field(description="Running jobs of each user (`MaxJobs`).")
    ] = None
    max_submit_jobs: Annotated[
        Count | None,
        Field(
            description="Jobs of each user, waiting ones too; each task of an array is one. Null: "
            "that of the account above, at the top `scheduling.max_submit_jobs`."
        ),
    ] = None
    max_tres_per_job: Annotated[
        Tres | None, Field(description="What one job may have.", examples=[{"gpu": 4}])
    ] = None
    max_tres_per_node: Annotated[
        Tres | None, Field(description="What one job may have on each node.")
    ] = None
    grp_tres: Annotated[
        Tres | None,
        Field(
            description="What all jobs of the account, accounts below included, may have at once.",
            examples=[{"gpu": 8}],
        ),
    ] = None
    grp_tres_run_mins: Annotated[
        TresMinutes | None,
        Field(
            description="What running jobs may still use: their TRES times the rest of their time "
            "limits. Jobs beyond wait; one beyond by itself is refused if its QoS has "
            "`deny_on_limit`.",
            examples=[{"gpu": 5760}],
        ),
    ] = None
    grp_jobs: Annotated[Count | None, Field(description="Running jobs of all together.")] = None
    grp_submit_jobs: Annotated[
        Count | None, Field(description="Jobs of all together, waiting ones too.")
    ] = None


class Qos(Model):
    """A QoS of SLURM: a kind of job, with a priority and limits; null: no limit."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"max_wall": "04:00:00", "max_tres_per_user": {"gpu": 1}}]}
    )

    priority: Annotated[
        Count, Field(description="The higher, the earlier jobs start, as part of their priority.")
    ] = 0
    preempt: Annotated[
        list[str],
        Field(
            description="QoS whose jobs give way to those of this one.", examples=[["scavenger"]]
        ),
    ] = []
    preempt_mode: Annotated[
        Literal["requeue", "cancel"],
        Field(
            description="What happens to jobs of this QoS that give way: they are queued again, or "
            "end. Jobs that can't be requeued (`--no-requeue`, `srun`, `salloc`) always end."
        ),
    ] = "requeue"
    grace_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=86400,
            json_schema_extra={"x-unit": "s"},
            description="Time between the signal and the end, for jobs of this QoS that give way: "
            "the signal of `--signal`, or SIGCONT and SIGTERM to their steps. With 0 they get "
            "SIGTERM at once; the end is 30 s after SIGTERM (`KillWait`).",
        ),
    ] = 0
    deny_on_limit: Annotated[
        bool,
        Field(
            description="sbatch refuses a job that is beyond a limit by itself (`DenyOnLimit`); "
            "false: it waits for ever."
        ),
    ] = True
    max_wall: Annotated[
        SlurmTime | None,
        Field(
            description="Longest time of a job (`MaxWall`), and the time of one that asks for "
            "none in a partition without `default_time`; `UNLIMITED` is as null."
        ),
    ] = None
    max_tres_per_job: Annotated[
        Tres | None, Field(description="What one job may have.", examples=[{"gpu": 4}])
    ] = None
    max_tres_per_node: Annotated[
        Tres | None, Field(description="What one job may have on each node.")
    ] = None
    max_tres_per_user: Annotated[
        Tres | None,
        Field(description="What the jobs of a user may have at once.", examples=[{"gpu": 4}]),
    ] = None
    max_tres_per_account: Annotated[
        Tres | None, Field(description="What the jobs of an account may have at once.")
    ] = None
    min_tres_per_job: Annotated[
        Tres | None,
        Field(
            description="What a job must ask for at least; as a partition's QoS `{gpu: 1}` keeps "
            "jobs without GPUs off its nodes.",
            examples=[{"gpu": 1}],
        ),
    ] = None
    grp_tres: Annotated[
        Tres | None,
        Field(description="What all jobs of this QoS may have at once.", examples=[{"gpu": 8}]),
    ] = None
    grp_tres_run_mins: Annotated[
        TresMinutes | None,
        Field(
            description="What its running jobs may still use: their TRES times the rest of their "
            "time limits. Jobs beyond wait; with `deny_on_limit` one beyond by itself is refused.",
            examples=[{"gpu": 5760}],
        ),
    ] = None
    grp_jobs: Annotated[Count | None, Field(description="Its running jobs.")] = None
    grp_submit_jobs: Annotated[Count | None, Field(description="Its jobs, waiting ones too.")] = (
        None
    )
    max_jobs_per_user: Annotated[Count | None, Field(description="Running jobs of a user.")] = None
    max_jobs_per_account: Annotated[
        Count | None, Field(description="Running jobs of an account.")
    ] = None
    max_submit_jobs_per_user: Annotated[
        Count | None, Field(description="Jobs of a user, waiting ones too.")
    ] = None
    max_submit_jobs_per_account: Annotated[
        Count | None, Field(description="Jobs of an account, waiting ones too.")
    ] = None
