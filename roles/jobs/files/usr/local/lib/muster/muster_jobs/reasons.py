# SPDX-License-Identifier: Apache-2.0
"""SLURM's reasons for which a job waits, in words (https://slurm.schedmd.com/job_reason_codes.html).

The names are those of slurm_protocol_defs.c, since 24.05 job_state_reason.c, of 21.08 to 25.11.
"""

import re
from dataclasses import dataclass

_ASK = "an administrator sees what can be done"
_LIMITS = "sacctmgr show associations and sacctmgr show qos list the limits"
_NO_SUCH_NODE = (
    "no node has what it asks for",
    "change --constraint, --gres or --mem: scontrol show node shows what nodes have",
)

WORDS = {
    "None": ("SLURM has not looked at it yet", "wait some seconds"),
    "Resources": ("it is next, and waits for nodes to become free", "ask for less, or wait"),
    "Priority": (
        "others are first: their accounts used less, or they wait longer",
        "ask for less time: short jobs fill gaps",
    ),
    "BeginTime": (
        "its time has not come: it was queued again, or has --begin",
        "wait; a job that is queued again starts two minutes later at the earliest",
    ),
    "Dependency": (
        "it waits for another job (--dependency)",
        "nothing; squeue --jobs=JOB --format=%E names the other one",
    ),
    "DependencyNeverSatisfied": (
        "the job for which it waits has not ended as --dependency wants it",
        "scancel it, and submit both again",
    ),
    "JobArrayTaskLimit": (
        "as many tasks of its array run as may at a time (the number after %)",
        "nothing, or scontrol update jobid=JOB arraytaskthrottle=NUMBER",
    ),
    "JobHeldUser": ("its owner holds it", "scontrol release JOB"),
    "JobHeldAdmin": (
        "it is held",
        "scontrol release JOB if you held it or its priority is 0; else ask an administrator",
    ),
    "JobHoldMaxRequeue": (
        "it was queued again too often, and is held",
        "find out why it ends (its output), then scontrol release JOB",
    ),
    "Reservation": ("its reservation has not begun", "wait for it (scontrol show reservation)"),
    "ReservationDeleted": (
        "its reservation is not there any more",
        "scontrol update jobid=JOB reservation=, or submit it again without --reservation",
    ),
    "Licenses": ("licences that it needs are in use", "wait (scontrol show licenses)"),
    "ReqNodeNotAvail": (
        "a node that it needs is out of service, reserved or in use",
        "sinfo -R says why; ask for other nodes",
    ),
    "PartitionDown": ("its partition is stopped", "ask an administrator, or use another one"),
    "PartitionInactive": ("its partition is stopped", "ask an administrator, or use another one"),
    "PartitionNodeLimit": (
        "it asks for more or fewer nodes than its partition allows or has in service",
        "scontrol show partition shows how many; ask for another number, or another partition",
    ),
    "PartitionTimeLimit": (
        "it asks for more time than its partition allows",
        "scontrol update jobid=JOB timelimit=TIME, or another partition",
    ),
    "PartitionConfig": (
        "it does not fit the limits of its partition",
        "scontrol show partition shows them; ask for less, or another partition",
    ),
    "MaxMemPerLimit": (
        "it asks for more memory on a node or for a CPU than is allowed",
        "ask for less memory, or for more CPUs for the same",
    ),
    "AccountNotAllowed": (
        "its account may not use the partition",
        "use another account or partition (sacctmgr show associations user=$USER)",
    ),
    "InvalidAccount": (
        "its account is not valid any more",
        "use another one (sacctmgr show associations user=$USER)",
    ),
    "AccountingPolicy": ("a limit of its account or QOS is reached", _LIMITS),
    "QOSNotAllowed": ("its QOS is not allowed here", "leave --qos out, or name another one"),
    "InvalidQOS": ("its QOS is not valid any more", "leave --qos out, or name another one"),
    "QOSUsageThreshold": ("its account has used too much for this QOS", "use another QOS, or wait"),
    "QOSJobLimit": ("as many jobs of its QOS run as may", "wait, or use another QOS"),
    "QOSResourceLimit": ("its QOS has all that it may have", "wait, or use another QOS"),
    "QOSTimeLimit": ("its QOS has used all its time", "use another QOS, or ask an administrator"),
    "AssociationJobLimit": ("as many jobs of its account run as may", "wait"),
    "AssociationResourceLimit": ("its account has all that it may have", "wait"),
    "AssociationTimeLimit": ("its account has used all its time", _ASK),
    "BadConstraints": _NO_SUCH_NODE,
    "Constraints": _NO_SUCH_NODE,
    "Prolog": ("its nodes are prepared for it", "wait a moment"),
    "MpiPortsBusy": ("ports that srun reserves for MPI are in use", "wait"),
    "MaxPoweredUpNodes": (
        "as many nodes are powered up as may be",
        "wait until others end, or ask an administrator",
    ),
    "ReservationInvalid": (
        "its reservation is not valid for it",
        "scontrol show reservation shows who may use it; submit it again without --reservation",
    ),
    "Cleaning": ("its last run is still being cleaned up", "wait a minute"),
    "NodeDown": ("a node that it needs is down", "sinfo -R says why; ask for other nodes"),
    "SchedDefer": (
        "it is to start at once or never (--immediate), and SLURM starts none at once here",
        "leave --immediate out",
    ),
    "DeadLine": ("it can't end before its --deadline", "submit it again with another one"),
    "JobLaunchFailure": ("it could not be started", "send its number to an administrator"),
    "SystemFailure": ("SLURM, a file system or the network failed", _ASK),
    "OutOfMemory": ("it needed more memory than it had", "ask for more (--mem)"),
    "NonZeroExitCode": ("it ended with an error", "its output says why"),
    "RaisedSignal": ("a signal ended it", "its output says why"),
    "TimeLimit": ("it ran into its time limit", "ask for more (--time)"),
    "InactiveLimit": ("its srun or salloc was silent for too long", "submit it with sbatch"),
    "BurstBufferResources": ("space in the burst buffer is in use", "wait, or ask for less"),
    "BurstBufferStageIn": ("its data is being brought into the burst buffer", "wait"),
    "BurstBufferOperation": ("the burst buffer failed", _ASK),
    "FrontEndDown": ("the front-end node is down", _ASK),
    "FedJobLock": ("the clusters of the federation settle which of them starts it", "wait"),
    "PowerNotAvail": ("there is not enough electric power", "wait"),
    "PowerReserved": ("electric power is reserved for others", "wait"),
    "BlockMaxError": ("a block of the machine failed too often", _ASK),
    "BlockFreeAction": ("a block of the machine is being freed", "wait"),
    "NvidiaImexChannels": ("all IMEX channels between GPUs are in use", "wait"),
    "InvalidReason": ("SLURM has no reason that it knows", _ASK),
    "InvaildReason": ("SLURM has no reason that it knows", _ASK),  # so spelled up to 24.11
    # Texts in place of names.
    "launch failed requeued held": (
        "it could not be started, and is held",
        "send its number to an administrator",
    ),
    "job requeued in held state": (
        "it was queued again, and is held",
        "scontrol release JOB if it was you; else ask an administrator",
    ),
    "Nodes required for job are": (
        "nodes that it needs are out of service, or reserved for jobs that are first",
        "sinfo -R says why; ask for other nodes, or wait",
    ),
}
"""Name, or beginning of a text -> why it waits, and what to do."""

_LIMIT = re.compile(
    r"(?P<whose>Assoc|QOS|)(?P<kind>Grp|Max|Min)(?P<what>BB|Billing|CPU|Cpu|Energy|GRES|Jobs?|License|"
    r"Memory|Mem|Node|Submit|SubmitJobs?|Unknown|WallDuration|Wall)"
    r"(?P<time>RunMinutes|RunMins|Minutes|)(?:Per(?P<per>Job|Node|User|Account)|)(?P<end>NotSatisfied|)"
    r"(?:Limit|)"
)
_WHAT = {
    "BB": "burst buffer",
    "Billing": "billing units",
    "CPU": "CPUs",
    "Energy": "energy",
    "GRES": "GPUs (or another generic resource)",
    "Job": "jobs that run",
    "License": "licences",
    "Mem": "memory",
    "Node": "nodes",
    "Submit": "jobs in the queue",
    "Unknown": "some resource",
    "Wall": "time",
}
_TIMES = {
    "": "",
    "Minutes": " times minutes",
    "RunMinutes": " times minutes that running jobs have left",
    "RunMins": " times minutes that running jobs have left",
}


@dataclass(frozen=True)
class Named:
    """What the name of a limit says of it: AssocGrpGRES, QOSMaxJobsPerUserLimit."""

    of_account: bool
    """Of an association or an account; else of a QOS."""
    kind: str
    """Grp, Max or Min."""
    what: str
    """A key of what is counted: Job, Submit, Wall, CPU, GRES..."""
    time: str
    """Minutes, RunMinutes or RunMins where it is counted times minutes; else empty."""
    per: str
    """For whom it is counted: Job, Node, User, Account; empty for all together."""


def named(reason: str) -> "Named | None":
    """Return what a reason says if it is the name of a limit."""
    found = _LIMIT.fullmatch(reason.strip().strip("()"))
    if not found:
        return None
    what = next(key for key in _WHAT if found["what"].lower().startswith(key.lower()))
    of_account = found["whose"] == "Assoc"
    per = found["per"] or ""
    if found["kind"] != "Grp" and not per:
        # AssocMaxJobsLimit counts the jobs of a user in an account.
        per = "User" if what in ("Job", "Submit") else "Job"
    return Named(of_account, found["kind"], what, found["time"], per)


def words(reason: str) -> tuple[str, str]:
    """Return why a job waits and what its owner can do, for what `squeue` has as reason."""
    text = reason.strip().strip("()").replace("_", " ")
    for name, said in WORDS.items():
        if text == name or re.match(rf"{re.escape(name)}\b[^\w]", text):
            return said
    if limit := named(reason):
        return _limit_words(limit)
    return f"SLURM says: {text}", "send its number to an administrator if that does not help"


def counted(limit: Named) -> str:
    """Return what a limit counts, such as `CPUs times minutes that running jobs have left`."""
    return _WHAT[limit.what] + _TIMES[limit.time]


def _limit_words(limit: Named) -> tuple[str, str]:
    """Return the same for a limit, whose name is made of parts."""
    whose = "account" if limit.of_account else "QOS"
    what = counted(limit)
    if limit.kind == "Min":
        return f"it asks for less than its {whose} wants: {what}", f"ask for more; {_LIMITS}"
    if limit.kind == "Grp":
        said = f"the jobs of its {whose} have together what they may have: {what}"
    elif limit.per == "Account":
        said = f"the jobs of its account have what its {whose} allows them: {what}"
    elif limit.per == "User":
        said = f"the jobs of its owner have what its {whose} allows them: {what}"
    else:
        thing = "each node" if limit.per == "Node" else "a job"
        return (
            f"it asks for more than its {whose} allows {thing}: {what}",
            f"ask for less; {_LIMITS}",
        )
    return said, f"wait, or ask for less; {_LIMITS}"
