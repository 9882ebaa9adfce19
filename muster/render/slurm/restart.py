"""Which settings a daemon reads only at its start, by release, and digests of them.

Sources: slurm.conf(5) of each release ("a restart of slurmctld is required for changes to this
parameter to take effect"), scontrol(1) reconfigure, and read_slurm_conf, _compare_hostnames,
_init_tres in src/slurmctld and _reconfigure in src/slurmd/slurmd/slurmd.c of the tags
slurm-21-08-5-1 to slurm-25-11-7-1.

Up to 23.02 `scontrol reconfigure` makes a running daemon read its files again: plugins stay as they
were loaded, and the nodes are those of the start. From 23.11 on it starts a new process with the
new files, which can change all but the listening port and the authentication.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps

from muster.catalog.hostlists import fold
from muster.definition.definition import Definition
from muster.definition.schema.base import Scalar
from muster.definition.schema.node_sets import NodeSet
from muster.render.slurm.conf_syntax import Line, word
from muster.render.slurm.node_lines import HARDWARE, hardware

RECONFIGURE_STARTS_PROCESSES = "23.11"
"""First release in which `scontrol reconfigure` starts new processes."""

_AUTHENTICATION = ("AuthType", "AuthInfo", "AuthAltTypes", "AuthAltParameters", "CredType")

_SLURMCTLD_BEFORE = (
    *_AUTHENTICATION,
    "AccountingStorageEnforce",
    "AccountingStorageHost",
    "AccountingStorageTRES",
    "AccountingStorageType",
    "BurstBufferType",
    "ClusterName",
    "GresTypes",
    "JobAcctGatherType",
    "JobContainerType",
    "MaxJobCount",
    "MaxNodeCount",
    "PowerPlugin",
    "PriorityType",
    "ProctrackType",
    "SchedulerType",
    "SelectType",
    "SelectTypeParameters",
    "SlurmctldHost",
    "SlurmctldPort",
    "SlurmdPort",
    "SlurmUser",
    "StateSaveLocation",
    "SwitchType",
    "TopologyPlugin",
)
_SLURMD_BEFORE = (
    *_AUTHENTICATION,
    "CoreSpecPlugin",
    "GresTypes",
    "JobAcctGatherType",
    "JobContainerType",
    "ProctrackType",
    "SelectType",
    "SlurmdPort",
    "SlurmdSpoolDir",
    "SwitchType",
    "TaskPlugin",
)
_SLURMD_CGROUP_BEFORE = ("CgroupPlugin", "CgroupMountpoint", "IgnoreSystemd")
_SLURMCTLD_SINCE = (*_AUTHENTICATION, "SlurmctldPort")
_SLURMD_SINCE = (*_AUTHENTICATION, "SlurmdPort")

Facts = dict[str, str]


@dataclass(frozen=True)
class RestartDigests:
    """Digests that change exactly when the daemon has to be restarted."""

    slurmctld: str
    slurmd: dict[str, str]
    """By node set: a change of one set's hardware does not concern the others."""


def restart_digests(
    definition: Definition, conf: Mapping[str, Scalar], cgroup: Mapping[str, Scalar]
) -> RestartDigests:
    """Return the digests for parameters of slurm.conf and cgroup.conf as they are written."""
    version = definition.cluster.slurm_version
    sets = definition.cluster.nodes
    conf_words = {key: word(value) for key, value in conf.items()}
    cgroup_words = {key: word(value) for key, value in cgroup.items()}
    nodes = {fold(definition.hosts_of(name)): hardware(sets[name]) for name in sets}
    return RestartDigests(
        slurmctld=_digest(
            _slurmctld_parameters(version, conf_words), _slurmctld_nodes(version, nodes)
        ),
        slurmd={
            name: _digest(
                _slurmd_parameters(version, conf_words, cgroup_words),
                _slurmd_node(version, hardware(sets[name])),
                *_instances(sets[name]),
            )
            for name in sets
        },
    )


def _digest(*facts: object) -> str:
    return sha256(dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _slurmctld_parameters(version: str, conf: Mapping[str, str]) -> Facts:
    """Return the parameters of slurm.conf that slurmctld reads only at its start."""
    starts_processes = version >= RECONFIGURE_STARTS_PROCESSES
    return _chosen(conf, _SLURMCTLD_SINCE if starts_processes else _SLURMCTLD_BEFORE)


def _slurmd_parameters(version: str, conf: Mapping[str, str], cgroup: Mapping[str, str]) -> Facts:
    """Return the parameters of both files that slurmd reads only at its start."""
    if version >= RECONFIGURE_STARTS_PROCESSES:
        return _chosen(conf, _SLURMD_SINCE)
    # job_container.conf is read at the start too, and what it says follows from TmpFS.
    keys = (*_SLURMD_BEFORE, *(("TmpFS",) if "JobContainerType" in conf else ()))
    return _chosen(conf, keys) | _chosen(cgroup, _SLURMD_CGROUP_BEFORE)


def _slurmctld_nodes(version: str, nodes: Mapping[str, Line]) -> dict[str, Line]:
    """Return what slurmctld reads about the nodes only at its start, by hostlist.

    A feature or a weight, on which only its choices depend, is not among them.
    """
    if version >= RECONFIGURE_STARTS_PROCESSES:
        return {}
    return {hosts: _slurmd_node(version, keys) for hosts, keys in nodes.items()}


def _slurmd_node(version: str, node: Mapping[str, str]) -> Line:
    """Return what slurmd reads about its own node only at its start."""
    if version >= RECONFIGURE_STARTS_PROCESSES:
        return {}
    return {key: node[key] for key in HARDWARE if key in node}


def _instances(node_set: NodeSet) -> list[dict[str, int]]:
    """Return the MIG instances of a node, which slurmd reads only at its start in all releases.

    When slurmctld sends another gres.conf they don't exist yet. Up to 23.02 slurmd then exits,
    later it keeps what it had (_my_stat in gres.c, _try_to_reconfig in slurmd.c).
    """
    return [node_set.gpus.mig] if node_set.gpus and node_set.gpus.mig else []


def _chosen(values: Mapping[str, str], keys: Iterable[str]) -> Facts:
    """Return the values of `keys`, which SLURM reads in any case."""
    given = {key.lower(): value for key, value in values.items()}
    return {key: given[key.lower()] for key in keys if key.lower() in given}
