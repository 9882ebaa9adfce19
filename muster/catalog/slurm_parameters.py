"""The parameters of slurm.conf and cgroup.conf: in which releases they exist, and who sets them."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

RELEASES = ("21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11")


@dataclass(frozen=True)
class ValueType:
    """What a parameter takes."""

    kind: str
    """number, choice (one word), flags (some), or a word that slurm_parameters.conf explains."""
    least: int = 0
    """Bounds of a number."""
    most: int = 0
    choices: tuple[str, ...] = ()
    """The words of a choice or of flags, in small letters."""

    @property
    def endless(self) -> bool:
        """Whether SLURM also takes UNLIMITED and INFINITE for the number."""
        return self.most in (_UINT16_MAX, _UINT32_MAX)


_UINT16_MAX, _UINT32_MAX = 65535, 2**32 - 1
# log_string2num in src/common/log.c of SLURM.
_LEVELS = (
    *("quiet", "fatal", "error", "info", "verbose"),
    *("debug", "debug2", "debug3", "debug4", "debug5"),
    *map(str, range(10)),
)


@dataclass(frozen=True)
class Parameter:
    """A parameter that SLURM's parser accepts, in which releases, and with what value."""

    name: str
    first: str
    last: str
    type: ValueType


@cache
def parameters(file: str) -> dict[str, Parameter]:
    """Parameters of slurm.conf or cgroup.conf by their name in small letters."""
    text = files("muster.catalog").joinpath("slurm_parameters.conf").read_text()
    section = text.split(f"[{file}]\n", 1)[1].split("\n[", 1)[0]
    by_name = {}
    for line in section.split("\n"):
        if line:
            name, first, last, value_type = line.split()
            by_name[name.lower()] = Parameter(
                name,
                RELEASES[0] if first == "-" else first,
                RELEASES[-1] if last == "-" else last,
                _value_type(value_type),
            )
    return by_name


def _value_type(text: str) -> ValueType:
    least, is_number, most = text.partition("..")
    if is_number:
        return ValueType("number", int(least), int(most))
    if text == "level":
        return ValueType("choice", choices=_LEVELS)
    if "|" in text:
        return ValueType("choice", choices=tuple(text.split("|")))
    if "," in text:
        return ValueType("flags", choices=tuple(text.split(",")))
    return ValueType(text)


# Parameters that Muster decides, in lower case, and what to do instead.
_GROUP = "it follows from the group `{}` of hosts.yml"
_FIXED = "Muster's services depend on it; it can't be changed"
_ISOLATION = "Muster isolates jobs with it; it can't be changed"
_FOLDER = "slurmd runs all programs in {} of its node: put yours there, beside Muster's"
OVERSUBSCRIBE = (
    "it can't be set: jobs share a node by asking for fewer of its cores, memory is never promised "
    "twice, and GPUs are shared by `shards`; take it out"
)
"""What to do instead of this parameter of partitions."""
_AUTOSCALER = "Muster's autoscaler makes and deletes VMs with it; it can't be changed"
OWNED = {
    "slurm.conf": {
        "clustername": "use `name`",
        **dict.fromkeys(
            (
                "slurmctldhost",
                "slurmctldaddr",
                "controlmachine",
                "controladdr",
                "backupcontroller",
                "backupaddr",
            ),
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
        **dict.fromkeys(("oversubscribe", "shared"), OVERSUBSCRIBE),
        "defmempercpu": "use `memory_per_cpu_mib` of the partition",
        "defmempergpu": "use `memory_per_gpu_mib` of the partition",
        "defmempernode": "use `memory_per_cpu_mib` of the partition",
        "maxmempercpu": "use `max_memory_per_cpu_mib` of the partition",
        "maxmempernode": "use `max_memory_per_cpu_mib` of the partition",
        "defcpupergpu": "use `cpus_per_gpu` of the partition",
        "grestypes": "use `gpus` of the node set",
        "selecttype": "use `scheduling.consumable`",
        "selecttypeparameters": "use `scheduling.consumable`",
        "tmpfs": "use `storage.scratch`",
        "jobcontainertype": "use `storage.private_tmp`",
        "namespacetype": "use `storage.private_tmp`",
        "mailprog": "use `mail`",
        "maildomain": "use `mail.domain`",
        "include": "write the parameters here",
        "prolog": _FOLDER.format("/etc/slurm/prolog.d"),
        "epilog": _FOLDER.format("/etc/slurm/epilog.d"),
        "prepplugins": "Muster's prologs and epilogs need prep/script, the default; take it out",
        "taskplugin": _ISOLATION,
        "proctracktype": _ISOLATION,
        "healthcheckprogram": "Muster's program drains broken nodes and resumes them; to add a "
        "check, have a timer run it that drains the node with `scontrol update`",
        "plugindir": "SLURM finds its packaged plugins without it; take it out",
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
        ("constraincores", "constrainramspace", "constraindevices"), _ISOLATION
    ),
}

# Those of slurm.conf that Muster decides only where nodes are VMs.
OWNED_IN_CLOUD = {
    **dict.fromkeys(("resumeprogram", "suspendprogram", "resumefailprogram"), _AUTOSCALER),
    "prologslurmctld": "Muster's program starts jobs whose VMs have come; it can't be changed",
    "suspendtime": "use `idle_seconds` of the node set",
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
        "cgroup.conf",
        "CgroupPlugin",
        "cgroup/v2",
        "22.05",
        None,
        "SLURM 21.08 has cgroup/v1 only: boot with systemd.unified_cgroup_hierarchy=0",
    ),
)


# Values with which what Muster sets does not work, in any release: file, parameter and value in
# small letters, why, and what to do.
UNSAFE_VALUES = (
    (
        "cgroup.conf",
        "cgroupplugin",
        "disabled",
        "jobs would not be isolated: each could use all CPUs, memory and GPUs of its node",
        "use cgroup/v1 or leave it out",
    ),
    (
        "slurm.conf",
        "prologflags",
        "nohold",
        "Muster needs Contain, and slurmctld does not start with both",
        "leave NoHold out",
    ),
    (
        "slurm.conf",
        "authalttypes",
        "auth/none",
        "SLURM would believe anybody who claims to be somebody else",
        "leave auth/none out",
    ),
    (
        "slurm.conf",
        "preemptmode",
        "suspend",
        "a suspended job keeps its memory and its GPUs: the job that it gives way to gets neither",
        "write requeue or cancel",
    ),
    *(
        (
            "slurm.conf",
            "accountingstorageenforce",
            nothing,
            "people without an account could run jobs",
            "leave it out, or write at least: associations",
        )
        for nothing in ("none", "0")
    ),
)
