"""Checks of parameters below `slurm` that switch off what the definition says of jobs."""

from collections.abc import Iterator

from muster.definition.checks.limits import NORMAL, associations, limits_not_enforced
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.slurm import parameter_name, parameter_words
from muster.definition.definition import Definition

_ENFORCE = "accountingstorageenforce"


def _has_accounting(d: Definition) -> bool:
    return bool(d.hosts.groups.get("database"))


@check("submit-limit-not-enforced")
def submit_limit_not_enforced(d: Definition) -> Iterator[Finding]:
    """A bound of jobs for everybody, and an AccountingStorageEnforce by which SLURM ignores it."""
    words, scheduling = parameter_words(d, _ENFORCE), d.cluster.scheduling
    is_given = "max_submit_jobs" in scheduling.model_fields_set
    # `none` has an error already.
    if not words or words & {"limits", "safe", "all", "2", "none", "0"}:
        return
    if is_given and scheduling.max_submit_jobs and _has_accounting(d):
        if any(limits_not_enforced(d)):
            return  # it says so of all limits
        yield Finding(
            ("slurm", parameter_name(d, _ENFORCE)),
            "without limits SLURM ignores scheduling.max_submit_jobs, which says "
            f"{scheduling.max_submit_jobs}",
            "take it out, or add limits",
            because=("scheduling", "max_submit_jobs"),
        )


@check("wckeys-enforced")
def wckeys_enforced(d: Definition) -> Iterator[Finding]:
    """An AccountingStorageEnforce that wants wckeys, which Muster gives to nobody."""
    # Users whom slurmctld has read at its start have an empty default wckey, those who are added
    # later have none (assoc_mgr.c), and then their jobs are refused (ESLURM_INVALID_WCKEY in
    # job_mgr.c).
    wanted = sorted(parameter_words(d, _ENFORCE) & {"all", "wckeys"})
    if wanted and _has_accounting(d):
        yield Finding(
            ("slurm", parameter_name(d, _ENFORCE)),
            f"with {wanted[0]} SLURM refuses jobs of people whom a run adds, until slurmctld "
            "restarts: they have no wckey, and Muster makes none",
            'take it out, or write "associations,limits,qos,safe"; `TrackWCKey: yes` counts wckeys '
            "and refuses nobody",
        )


@check("fairshare-off")
def fairshare_off(d: Definition) -> Iterator[Finding]:
    """Shares of accounts or users, and parameters of SLURM by which they count nothing."""
    # 1 is what all have without a line.
    path = next(
        (path for path, _, one in associations(d) if one.fairshare not in (None, 1)),
        None,
    )
    if path is None or not _has_accounting(d):
        return
    for parameter, value in (("prioritytype", "priority/basic"), ("priorityweightfairshare", "0")):
        if parameter_words(d, parameter) != {value}:
            continue
        if parameter == "prioritytype" and any(qos.priority for qos in d.cluster.qos.values()):
            return  # the same mistake: qos-priority-off
        given = parameter_name(d, parameter)
        yield Finding(
            ("slurm", given),
            f"with {value} no `fairshare` counts anything, as that of {'.'.join(map(str, path))}",
            f"take {given} out, or `fairshare` of accounts and users",
            because=(*path, "fairshare"),
        )
        return


@check("preempted-jobs-not-requeued")
def preempted_jobs_not_requeued(d: Definition) -> Iterator[Finding]:
    """Jobs that give way should be queued again, and a JobRequeue by which they end."""
    if parameter_words(d, "jobrequeue") != {"0"} or not _has_accounting(d):
        return
    below = {name for qos in d.cluster.qos.values() for name in qos.preempt}
    qos = d.cluster.qos
    # `normal` without a line is queued again, too: render/slurm/slurm_conf.py.
    requeued = [NORMAL] if NORMAL not in qos else []
    requeued += [name for name, one in qos.items() if one.preempt_mode == "requeue"]
    names = [name for name in requeued if name in below]
    if names:
        yield Finding(
            ("slurm", parameter_name(d, "jobrequeue")),
            f"jobs of {' and '.join(names)} that give way would end, unless they ask for "
            "--requeue, and by `preempt_mode` of the QoS they are queued again",
            f"take it out, or write `preempt_mode: cancel` for {' and '.join(names)}",
            because=("qos", names[0]),
        )
