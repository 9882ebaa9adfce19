"""The parameters of slurm.conf that are not nodes and partitions."""

from muster.definition.checks.queue_places import queue_places
from muster.definition.definition import Definition
from muster.definition.gres import accounted_gres, gpu_sets, gres_names
from muster.definition.schema.base import Scalar
from muster.render.slurm.job_submit import has_job_submit
from muster.render.slurm.scheduler_parameters import profile, scheduler_options

STATE_DIR = "/var/lib/slurm/slurmctld"
LOG_DIR = "/var/log/slurm"
MUNGE_SOCKET = "/run/munge/munge.socket.2"
RESUME_PROGRAM = "/usr/local/sbin/muster-resume"
SUSPEND_PROGRAM = "/usr/local/sbin/muster-suspend"
RESUME_FAIL_PROGRAM = "/usr/local/sbin/muster-resume-failed"
WAIT_PROGRAM = "/usr/local/sbin/muster-wait-for-nodes"
MAIL_PROGRAM = "/usr/local/sbin/muster-mail"
REBOOT_PROGRAM = "/usr/sbin/reboot"
HEALTH_PROGRAM = "/usr/local/sbin/muster-health"
PROLOGS = "/etc/slurm/prolog.d/*"
EPILOGS = "/etc/slurm/epilog.d/*"
TASK_PROLOG = "/usr/local/lib/muster/task-prolog"

# Below net.ipv4.ip_local_port_range (32768), so that no outgoing connection of the machine takes
# one of them; an srun listens on 4 ports and 2 more for every 48 nodes (slurm.conf(5)), so this is
# enough for more than a thousand at once on one machine.
SRUN_PORTS = "25000-32767"

# List parameters with the entries that the roles, the definition's accounts or its VMs need: where
# Muster sets them, an override of the list adds to them.
KEPT_ENTRIES = {
    "PrivateData": "cloud",
    "PrologFlags": "Contain",
    "LaunchParameters": "use_interactive_step",
    "ReconfigFlags": "KeepPowerSaveSettings",
    "SuspendExcStates": "DOWN,DRAIN,MAINTENANCE,RESERVED",
    "SchedulerParameters": "nohold_on_prolog_fail,salloc_wait_nodes,sbatch_wait_nodes",
    "SlurmctldParameters": "enable_configless,disable_triggers,node_reg_mem_percent=95,"
    "conmgr_max_connections=4096,preempt_send_user_signal,idle_on_node_suspend,cloud_reg_addrs,"
    "power_save_interval=0",
    "AccountingStorageEnforce": "associations",
    "AccountingStorageTRES": "gres/gpu",
    "PriorityFlags": "MAX_TRES",
    "JobSubmitPlugins": "lua",
}

MERGED_LISTS = ("SchedulerParameters",)
"""Lists whose other entries stay too: each is a parameter of its own."""


def parameters(definition: Definition) -> dict[str, Scalar]:
    """Return what Muster sets in slurm.conf, in the order of the file.

    Only what differs from SLURM's default in one of the releases, or what an administrator looks
    for first. MpiDefault is not among them: `pmix` needs a library that SLURM 22.05 of Debian
    doesn't depend on.
    """
    return {
        **_controllers(definition),
        **_services(definition),
        **_scheduling(definition),
        **_jobs(definition),
        **_health(),
        **_scratch(definition),
        **_private_tmp(definition),
        **_power(definition),
        **_reboot(definition),
        **_accounting(definition),
        **_mail(definition),
    }


def has_accounting(definition: Definition) -> bool:
    """Whether the cluster has accounting: a host in group `database`."""
    return bool(definition.hosts.groups.get("database"))


def _controllers(definition: Definition) -> dict[str, Scalar]:
    """Return the controller.

    One SlurmctldHost: a backup needs shared state, which Muster does not set up. No address beside
    its name: the role `base` keeps both in /etc/hosts, as for the nodes.
    """
    return {
        "ClusterName": definition.cluster.name,
        "SlurmctldHost": definition.hosts.groups["controller"][0],
        # A node whose memory shrinks by a few MiB with a new kernel stays in service; one that
        # lost a module does not.
        "SlurmctldParameters": ",".join(
            [
                "enable_configless",
                "node_reg_mem_percent=95",
                *_trigger_options(definition),
                *_connection_options(definition),
                *_notice_options(definition),
                *_power_options(definition),
            ]
        ),
    }


def _connection_options(definition: Definition) -> list[str]:
    """Return how many connections slurmctld takes at a time; before 24.11 it has 256 threads.

    50 by default: one job that opens so many and says nothing stops it for everybody.
    """
    return ["conmgr_max_connections=4096"] if definition.cluster.slurm_version >= "24.11" else []


def _trigger_options(definition: Definition) -> list[str]:
    """Return what refuses triggers: programs on the controller, ordered from any host as SlurmUser.

    slurmctld's unit ends them in all releases, without a word to whoever sets one.
    """
    return ["disable_triggers"] if definition.cluster.slurm_version >= "23.11" else []


def _notice_options(definition: Definition) -> list[str]:
    """Return what tells a job script that its job gives way.

    By itself SLURM sends SIGTERM to steps alone. With this a job that asked for a signal
    (`sbatch --signal=B:USR1@60`) gets that one, in its script too, at the begin of its
    `grace_seconds`.
    """
    preempts = any(qos.preempt for qos in definition.cluster.qos.values())
    return ["preempt_send_user_signal"] if preempts and has_accounting(definition) else []


def _services(definition: Definition) -> dict[str, Scalar]:
    """Return users and paths: those of Debian 13's units; the roles use them on all systems."""
    return {
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={MUNGE_SOCKET}",
        "StateSaveLocation": STATE_DIR,
        "SlurmdSpoolDir": "/var/spool/slurmd",
        "SlurmctldPidFile": "/run/slurmctld/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd.pid",
        "SlurmctldLogFile": f"{LOG_DIR}/slurmctld.log",
        "SlurmdLogFile": f"{LOG_DIR}/slurmd.log",
        "SrunPortRange": SRUN_PORTS,
        # The default of 10 s loses messages when many nodes register at once or a disk is slow;
        # the step timeout should be five times this one (slurm.conf(5)), or nodes drain.
        "MessageTimeout": 60,
        "UnkillableStepTimeout": 300,
        # A node that was only unreachable comes back by itself; one that crashed waits for an
        # administrator. A VM that restarted is healthy.
        "ReturnToService": 2 if definition.cluster.cloud else 1,
    }


def _scheduling(definition: Definition) -> dict[str, Scalar]:
    cluster = definition.cluster
    unit = {"cpu": "CR_CPU_Memory", "core": "CR_Core_Memory"}[cluster.scheduling.consumable]
    keys: dict[str, Scalar] = {
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": unit,
        # A job that can never run in its partition is refused at sbatch instead of waiting.
        "EnforcePartLimits": "ALL",
        # New members of a group may use its partitions within a minute; the default is ten.
        "GroupUpdateTime": 60,
        # All people with all that `max_submit_jobs` lets them have; SLURM's default is 10,000, and
        # jobs that have ended count for five minutes (MinJobAge). Measured: docs/limits.md.
        "MaxJobCount": queue_places(definition),
        # SLURM's default, said because it belongs to `max_submit_jobs`, which is above it: tasks of
        # an array have numbers up to 1,000, and each is one of the places in the queue.
        "MaxArraySize": 1001,
        "SchedulerParameters": ",".join(scheduler_options(definition)),
    }
    if gpu_sets(definition):
        keys["GresTypes"] = ",".join(gres_names(definition))
    if has_job_submit(definition):
        keys["JobSubmitPlugins"] = "lua"
    return keys


def _jobs(definition: Definition) -> dict[str, Scalar]:
    keys: dict[str, Scalar] = {
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/cgroup,task/affinity",
        # A job's cgroup exists on each of its nodes before its first task. Without X11.
        "PrologFlags": "Contain",
        "LaunchParameters": "use_interactive_step",
        # With SLURM's default of 0 the tasks that are left of a training wait for the one that
        # failed, and keep their nodes to the time limit. srun reads it, for its own step; its
        # option --kill-on-bad-exit and SLURM_KILL_BAD_EXIT go before it (srun's launch.c).
        "KillOnBadExit": 1,
    }
    # SLURM ignores PropagateResourceLimits beside it.
    if "propagateresourcelimits" not in map(str.lower, definition.cluster.slurm):
        # Limits of the login node's shell say nothing about a compute node.
        keys["PropagateResourceLimitsExcept"] = "MEMLOCK,NOFILE"
    return keys


def _health() -> dict[str, Scalar]:
    """Return what checks a node, and when: the role `health`.

    Prolog is a folder, as most releases take one pattern, and no arguments. A node on which nothing
    matches it is drained when a job comes, so nodes have the role first (site.yml).
    """
    return {
        "HealthCheckProgram": HEALTH_PROGRAM,
        "HealthCheckInterval": 60,
        # Drained nodes too: the check resumes them. Not all at once: each asks slurmctld.
        "HealthCheckNodeState": "ANY,CYCLE",
        "Prolog": PROLOGS,
    }


def _scratch(definition: Definition) -> dict[str, Scalar]:
    """Return where jobs have their scratch, and what ends with a job: the role `scratch`.

    Its programs read TmpFS. Epilog is a folder as Prolog is.
    """
    ends: dict[str, Scalar] = {"Epilog": EPILOGS}
    if definition.cluster.storage.scratch is None:
        return ends
    return {"TmpFS": definition.cluster.storage.scratch, **ends, "TaskProlog": TASK_PROLOG}


def _private_tmp(definition: Definition) -> dict[str, Scalar]:
    """Return the plugin that gives each job a /tmp and a /dev/shm of its own."""
    if not definition.cluster.storage.private_tmp:
        return {}
    # The same plugin, renamed.
    if definition.cluster.slurm_version >= "25.11":
        return {"NamespaceType": "namespace/tmpfs"}
    return {"JobContainerType": "job_container/tmpfs"}


def private_tmp_folder(definition: Definition) -> str:
    """Return where the jobs' /tmp lie: the program of Prolog (role `scratch`) has the same rule."""
    scratch = definition.cluster.storage.scratch
    return f"{scratch}/.private-tmp" if scratch else "/var/spool/muster-tmp"


def _power_options(definition: Definition) -> list[str]:
    """Return the entries of SlurmctldParameters for nodes in the cloud."""
    if definition.cluster.cloud is None:
        return []
    # A node that failed or was drained is usable again once its VM is deleted.
    options = ["idle_on_node_suspend"]
    if definition.cluster.slurm_version < "23.11":
        # A VM has another address each time; later releases always take the one it registers with.
        options.append("cloud_reg_addrs")
    if definition.cluster.slurm_version >= "24.05":
        # These look each second only for nodes that changed in a later second than they looked
        # last, and else every 10 s. A job that gets nodes in the same second waits for another
        # change. Measured: docs/figures.md.
        options.append("power_save_interval=0")
    return options


def _power(definition: Definition) -> dict[str, Scalar]:
    """Return how nodes in the cloud come and go.

    The rates are unlimited: the programs know what the cloud allows, SLURM does not.
    """
    cluster = definition.cluster
    if cluster.cloud is None:
        return {}
    keys: dict[str, Scalar] = {
        "ResumeProgram": RESUME_PROGRAM,
        "SuspendProgram": SUSPEND_PROGRAM,
        # A node that has not registered within ResumeTimeout is down for good without it.
        "ResumeFailProgram": RESUME_FAIL_PROGRAM,
        "ResumeRate": 0,
        "SuspendRate": 0,
        # Twice the time of a slow boot of an image with everything in it. With GPUs the node itself
        # waits 150 s for its driver, and large machines take minutes until their kernel starts.
        "ResumeTimeout": 900 if any(nodes.gpus for nodes in cluster.nodes.values()) else 300,
        "SuspendTimeout": 120,
        # Partitions of VMs set their own: nothing else is ever powered down.
        "SuspendTime": "INFINITE",
    }
    if profile(definition) == "elastic":
        # A job whose nodes have come is started by a pass every 30 s (PERIODIC_TIMEOUT in
        # slurmctld.h), or when this program ends, which waits for them: slurm.conf(5).
        keys["PrologSlurmctld"] = WAIT_PROGRAM
    version = cluster.slurm_version
    if version < "23.02":
        # Later releases show powered-down nodes anyway, and refuse the value.
        keys["PrivateData"] = "cloud"
    else:
        keys["ReconfigFlags"] = "KeepPowerSaveSettings"
        # A node that an administrator drained or set down is kept; the autoscaler powers down what
        # is down for other reasons. 22.05 has nothing like it.
        keys["SuspendExcStates"] = "DOWN,DRAIN,MAINTENANCE,RESERVED"
    if version < "23.11":
        # Nodes can't forward messages to each other before the controller knows their addresses.
        keys["TreeWidth"] = 65533
    return keys


def _reboot(definition: Definition) -> dict[str, Scalar]:
    """Return how a node is rebooted once its jobs have ended, which a new driver needs."""
    cluster = definition.cluster
    if cluster.nvidia is None or cluster.cloud:
        return {}
    return {
        "RebootProgram": REBOOT_PROGRAM,
        # By default 60 s: a node that takes longer is down for good ("reboot timed out"), and the
        # firmware of a machine with eight GPUs and a terabyte of memory alone takes ten minutes.
        "ResumeTimeout": 1800,
    }


def _accounting(definition: Definition) -> dict[str, Scalar]:
    """Return accounting and what depends on it: usage of jobs, limits, shares.

    Nothing without a database: jobs then run without an account, limits and shares are not
    enforced, sacct knows nothing (gathering usage without storing it is an error line in
    slurmctld's log).
    """
    if not has_accounting(definition):
        return {}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": definition.hosts.groups["database"][0],
        "AccountingStorageEnforce": "associations,limits,qos,safe",
        **_accounted_gpus(definition),
        "JobAcctGatherType": "jobacct_gather/cgroup",
        **_sampling(definition.cluster.slurm_version),
        # The account's `fairshare` counts first, then the time a job has waited.
        "PriorityType": "priority/multifactor",
        "PriorityWeightFairshare": 100000,
        "PriorityWeightAge": 10000,
        **_priority_of_qos(definition),
        # After a week what jobs used counts half: SLURM's default, and what people ask for first.
        # Who used much last month is not last for ever, nor forgotten after a night.
        "PriorityDecayHalfLife": "7-0",
        # A job's CPUs, memory and GPUs are not added up: its largest share of a node counts.
        **({"PriorityFlags": "MAX_TRES"} if definition.cluster.scheduling.billing_weights else {}),
        **_preemption(definition),
    }


def _sampling(version: str) -> dict[str, Scalar]:
    """Return how often slurmstepd looks at the memory of tasks.

    From 24.11 on it reads the kernel's own peak when a task ends (_prec_extra in
    jobacct_gather_cgroup.c; memory.peak since Linux 5.19), whatever the interval. Earlier releases
    keep the largest sample: with the default of 30 s a job of 28 s has none but that of its first
    moment. A sample reads some files in /proc for each process, and of the cgroup for each task.
    """
    return {} if version >= "24.11" else {"JobAcctGatherFrequency": "task=5"}


def _priority_of_qos(definition: Definition) -> dict[str, Scalar]:
    """Return how much the priority of a QoS counts: a half of all shares, five times a long wait.

    Without it SLURM takes priorities of QoS and never uses them.
    """
    if not any(qos.priority for qos in definition.cluster.qos.values()):
        return {}
    return {"PriorityWeightQOS": 50000}


def _preemption(definition: Definition) -> dict[str, Scalar]:
    """Return what makes jobs of one QoS give way to those of another.

    A QoS that others preempt has its own mode (render/limits.py); this one is for none.
    """
    if not any(qos.preempt for qos in definition.cluster.qos.values()):
        return {}
    return {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}


def _accounted_gpus(definition: Definition) -> dict[str, Scalar]:
    names = accounted_gres(definition)
    return {"AccountingStorageTRES": ",".join(names)} if names else {}


def _mail(definition: Definition) -> dict[str, Scalar]:
    """Return the mail program; without mail one that does nothing.

    SLURM's default is /bin/mail; where that is missing slurmctld logs an error at each start.
    """
    mail = definition.cluster.mail
    if mail is None:
        return {"MailProg": "/bin/true"}
    return {"MailProg": MAIL_PROGRAM, "MailDomain": mail.domain}
