"""The parameters of slurm.conf and cgroup.conf: in which releases they exist, and who sets them."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

RELEASES = ("21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11")


@dataclass(frozen=True)
class Parameter:
    """A parameter that SLURM's parser accepts, and in which releases."""

    name: str
    first: str
    last: str


@cache
def parameters(file: str) -> dict[str, Parameter]:
    """Parameters of slurm.conf or cgroup.conf by their name in small letters."""
    text = files("muster.catalog").joinpath("slurm_parameters.conf").read_text()
    section = text.split(f"[{file}]\n", 1)[1].split("\n[", 1)[0]
    by_name = {}
    for line in section.split("\n"):
        if line:
            name, first, last = line.split()
            by_name[name.lower()] = Parameter(
                name,
                RELEASES[0] if first == "-" else first,
                RELEASES[-1] if last == "-" else last,
            )
    return by_name


# Parameters that Muster writes, in lower case, and what to do instead.
_GROUP = "it follows from the group `{}` of hosts.yml"
_FIXED = "Muster's services depend on it; it can't be changed"
OWNED = {
    "slurm.conf": {
        "clustername": "use `name`",
        **dict.fromkeys(
            ("slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr"),
            _GROUP.format("controller"),
        ),
        **dict.fromkeys(
            (
                "accountingstoragehost",
                "accountingstoragebackuphost",
                "accountingstoragetype",
                "accountingstorageport",
                "accountingstorageuser",
                "accountingstoragepass",
                "accountingstorageloc",
            ),
            _GROUP.format("database"),
        ),
        "nodename": "use `nodes`",
        "nodeset": "use `nodes`",
        "downnodes": "use `scontrol update nodename=... state=down`",
        "frontendname": "there is no front end here",
        "partitionname": "use `partitions`",
        "defmempercpu": "use `memory_per_cpu_mib` of the partition",
        "defmempergpu": "use `memory_per_gpu_mib` of the partition",
        "defmempernode": "use `memory_per_cpu_mib` of the partition",
        "grestypes": "use `gpus` of the node set",
        "selecttype": "use `scheduling.consumable`",
        "selecttypeparameters": "use `scheduling.consumable`",
        "tmpfs": "use `storage.scratch`",
        "jobcontainertype": "use `storage.private_tmp`",
        "namespacetype": "use `storage.private_tmp`",
        "mailprog": "use `mail`",
        "maildomain": "use `mail.domain`",
        "include": "write the parameters here",
        **dict.fromkeys(
            (
                "authtype",
                "authinfo",
                "credtype",
                "cryptotype",
                "slurmuser",
                "slurmduser",
                "slurmctldport",
                "slurmdport",
                "slurmctldpidfile",
                "slurmdpidfile",
                "slurmctldlogfile",
                "slurmdlogfile",
                "statesavelocation",
                "slurmdspooldir",
            ),
            _FIXED,
        ),
    },
    "cgroup.conf": dict.fromkeys(
        ("constraincores", "constrainramspace", "constraindevices"),
        "Muster isolates jobs with it; it can't be changed",
    ),
}

# Parameters with which slurmctld or slurmd exits, though the parser may accept them.
REMOVED = {
    "slurm.conf": {
        "accountingstorejobcomment": "use AccountingStoreFlags: job_comment",
        "cachegroups": "take it out",
        "fastschedule": "use SlurmdParameters: config_overrides",
        "sallocdefaultcommand": "use LaunchParameters: use_interactive_step",
    },
    "cgroup.conf": {"cgroupreleaseagentdir": "take it out"},
}


@dataclass(frozen=True)
class RefusedValue:
    """A value that a parameter can't have in some releases."""

    file: str
    parameter: str
    value: str
    """One of the values separated by commas, or the whole."""
    first: str | None
    """Releases from this one on take it; None: all up to `last`."""
    last: str | None
    remedy: str

    def refused_by(self, release: str) -> bool:
        """Whether this release refuses it."""
        too_old = self.first is not None and release < self.first
        too_new = self.last is not None and release > self.last
        return too_old or too_new


# Found with the daemons of Debian 12 and 13 and, for the others, in SLURM's source.
REFUSED_VALUES = (
    RefusedValue("slurm.conf", "PrologFlags", "RunInJob", "24.05", None, "leave RunInJob out"),
    RefusedValue("slurm.conf", "TopologyPlugin", "topology/default", "23.11", None, "leave it out"),
    RefusedValue(
        "slurm.conf",
        "HealthCheckNodeState",
        "NONDRAINED_IDLE",
        "23.02",
        None,
        "use IDLE",
    ),
    RefusedValue(
        "slurm.conf",
        "SlurmctldParameters",
        "cloud_reg_addrs",
        None,
        "23.02",
        "leave it out: SLURM always does this",
    ),
    RefusedValue(
        "cgroup.conf", "CgroupPlugin", "disabled", "24.05", None, "use cgroup/v1 or leave it out"
    ),
    RefusedValue(
        "cgroup.conf",
        "CgroupPlugin",
        "cgroup/v2",
        "22.05",
        None,
        "SLURM 21.08 has cgroup/v1 only: boot with systemd.unified_cgroup_hierarchy=0",
    ),
)
