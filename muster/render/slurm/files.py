"""The configuration files of one cluster as text."""

from dataclasses import dataclass

from muster.definition.definition import Definition
from muster.definition.schema.base import Scalar
from muster.definition.schema.database import DATABASE_NAME, DATABASE_USER
from muster.render.slurm.conf_syntax import line, merge, text
from muster.render.slurm.job_submit import job_submit_lua
from muster.render.slurm.node_lines import gres_lines, node_lines, partition_lines
from muster.render.slurm.restart import RestartDigests, restart_digests
from muster.render.slurm.slurm_conf import (
    KEPT_ENTRIES,
    LOG_DIR,
    MERGED_LISTS,
    MUNGE_SOCKET,
    has_accounting,
    parameters,
    private_tmp_folder,
)

_NO_ACCOUNTING = """\
# No host is in group database: there is no accounting. Jobs run without an account; limits and
# shares of accounts are not enforced, sacct and sreport know nothing. AllowGroups, time and memory
# limits are enforced."""
_MEMORY = """\
# A job that asks for no memory has DefMemPerGPU for each GPU, or DefMemPerCPU for each CPU if it
# asks for no GPU."""
_CGROUP_V1_ONLY = """\
# SLURM 21.08 knows cgroup v1 only: boot the nodes with systemd.unified_cgroup_hierarchy=0."""


@dataclass(frozen=True)
class SlurmFiles:
    """The files of a cluster, complete except for the database's password."""

    slurm_conf: str
    gres_conf: str
    cgroup_conf: str
    job_container_conf: str
    """Empty where jobs have no /tmp of their own."""
    slurmdbd_conf: str
    """Without StoragePass; empty where no host is in group database."""
    job_submit_lua: str
    """Empty where no node has GPUs."""
    restart: RestartDigests
    resume_timeout_s: int
    """ResumeTimeout of slurm.conf; 0 where no node is ever powered up or rebooted."""


def render(definition: Definition) -> SlurmFiles:
    """Return the files of a definition that has passed its checks.

    The same definition gives the same bytes. Node sets, partitions and parameters come in the
    order of the definition; overrides of `slurm` and `cgroup` that Muster does not set follow, by
    name.
    """
    version = definition.cluster.slurm_version
    conf = merge(parameters(definition), definition.cluster.slurm, KEPT_ENTRIES, MERGED_LISTS)
    cgroup = merge(_cgroup(version), definition.cluster.cgroup, {})
    nodes = node_lines(definition)
    restart = restart_digests(definition, conf, cgroup)
    return SlurmFiles(
        slurm_conf=text(
            [
                # If the digest changes, slurmctld needs a restart; if only other text changes,
                # `scontrol reconfigure` is enough.
                f"# restart-slurmctld: {restart.slurmctld}",
                *(line({key: value}) for key, value in conf.items()),
                *([] if has_accounting(definition) else [_NO_ACCOUNTING]),
                *(line(keys) for keys in nodes),
                _MEMORY,
                *(line(keys) for keys in partition_lines(definition)),
            ]
        ),
        gres_conf=text(line(keys) for keys in gres_lines(definition)),
        cgroup_conf=text(
            [
                *([_CGROUP_V1_ONLY] if version == "21.08" else []),
                *(line({key: value}) for key, value in cgroup.items()),
            ]
        ),
        job_container_conf=text(
            line({key: value}) for key, value in _container(definition).items()
        ),
        slurmdbd_conf=text(line({key: value}) for key, value in _slurmdbd(definition).items()),
        job_submit_lua=job_submit_lua(definition),
        restart=restart,
        resume_timeout_s=int(conf.get("ResumeTimeout", 0)),
    )


def _cgroup(version: str) -> dict[str, Scalar]:
    """Return what isolates jobs; SLURM finds the plugin itself (autodetect)."""
    keys: dict[str, Scalar] = {
        "ConstrainCores": True,
        "ConstrainDevices": True,
        "ConstrainRAMSpace": True,
        # Without it a job that exceeds its memory is swapped out instead of ended.
        "ConstrainSwapSpace": True,
    }
    if version == "21.08":
        # systemd mounts no v1 freezer; from 22.05 on the option does nothing, then is an error.
        keys["CgroupAutomount"] = True
    return keys


def _container(definition: Definition) -> dict[str, Scalar]:
    """Return where the jobs' /tmp lie; /dev/shm is the memory's in all releases."""
    if not definition.cluster.storage.private_tmp:
        return {}
    return {"AutoBasePath": True, "BasePath": private_tmp_folder(definition)}


def _slurmdbd(definition: Definition) -> dict[str, Scalar]:
    if not has_accounting(definition):
        return {}
    database = definition.cluster.database
    return {
        "DbdHost": definition.hosts.groups["database"][0],
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={MUNGE_SOCKET}",
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "LogFile": f"{LOG_DIR}/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        # Muster's own is on the host that runs slurmdbd.
        "StorageHost": database.host if database else "localhost",
        **({"StoragePort": database.port} if database else {}),
        "StorageLoc": database.name if database else DATABASE_NAME,
        "StorageUser": database.login if database else DATABASE_USER,
        # Without these the database grows for ever; usage, the base of shares and reports, is kept
        # longest.
        "PurgeEventAfter": "12months",
        "PurgeJobAfter": "24months",
        "PurgeResvAfter": "24months",
        "PurgeStepAfter": "6months",
        "PurgeSuspendAfter": "6months",
        "PurgeTXNAfter": "24months",
        "PurgeUsageAfter": "36months",
    }
