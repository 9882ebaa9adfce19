"""A cluster with QoS and limits: what sacctmgr prints of it, and options that leave it as it is."""

from ansible_collections.muster.slurm.plugins.module_utils.accounting_plan import plan
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import parse
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import target
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import wanted
from sacctmgr_output import NO_LIMITS, OUTPUT, account, association, user

# Fields: READS["qos"]. 22.05.8 and 24.11.5 print them alike.
QOS = (
    "normal|10|00:00:00|scavenger|cluster|DenyOnLimit|1.000000|||||||"
    "gres/gpu=8,mem=100G||||||1-00:00:00|\n"
    "scavenger|0|00:01:00||requeue||0.250000||||||||||||||\n"
    "old|0|00:00:00|scavenger|cluster|NoReserve|1.000000|||||||||||||02:00:00|gres/gpu=1\n"
)
# Fields: READS["associations"].
ASSOCIATIONS = (
    f"root||||1|normal|{NO_LIMITS}\n"
    f"root|root|||1||{NO_LIMITS}\n"
    "lab-test|||root|3|normal,old,scavenger|normal|gres/gpu=8|gres/gpu=5760||||||2000||\n"
    f"lab-test|ada|||1||{NO_LIMITS}\n"
    "lab-test|alan|||7|||||||||4|||\n"
    f"other|||root|1||{NO_LIMITS}\n"
    f"other|ada|||1||{NO_LIMITS}\n"
)
HAS = OUTPUT["24.11"] | {
    "qos": QOS,
    "associations": ASSOCIATIONS,
    "accounts": (
        "lab-test|first trials|lab|ada|lab-test\nother|other|other||other\n"
        "root|default root account|root||root\n"
    ),
}

NORMAL = {
    "name": "normal",
    "limits": {
        "Priority": 10,
        "Preempt": ["scavenger"],
        "Flags": {"DenyOnLimit": True},
        "MaxTRESPerUser": {"gres/gpu": 8, "mem": 102400},
        "MaxWallDurationPerJob": 1440,
    },
}
SCAVENGER = {
    "name": "scavenger",
    "limits": {"GraceTime": 60, "PreemptMode": "requeue", "UsageFactor": 0.25},
}
OLD = {
    "name": "old",
    "limits": {
        "Preempt": ["scavenger"],
        "Flags": {"NoReserve": True},
        "MaxWallDurationPerJob": 120,
        "MinTRESPerJob": {"gres/gpu": 1},
    },
}
ALAN = association("alan", fairshare=7, limits={"MaxJobs": 4})
LAB_TEST = {
    "description": "First trials",
    "organization": "lab",
    "fairshare": 3,
    "qos": ["normal", "scavenger", "old"],
    "default_qos": "normal",
    "coordinators": ["ada"],
    "associations": [ALAN],
    "limits": {
        "GrpTRES": {"gres/gpu": 8},
        "GrpTRESRunMins": {"gres/gpu": 5760},
        "MaxSubmitJobs": 2000,
    },
}
ACCOUNTS = [account("LAB-test", "ada", "alan", **LAB_TEST), account("other", "ada")]
USERS = [user("ada", "other"), user("alan", admin_level="operator")]
SETTLED = (ACCOUNTS, USERS, [NORMAL, SCAVENGER, OLD])


WHERE = "where name=lab-test cluster=lab set"


def changed(kinds=(NORMAL, SCAVENGER, OLD), **of_account):
    """What is wanted with another account LAB-test or other QoS."""
    first = account("LAB-test", "ada", "alan", **LAB_TEST | of_account)
    return [first, ACCOUNTS[1]], USERS, list(kinds)


def with_limits(kind, **limits):
    return kind | {"limits": kind["limits"] | limits}


def commands(options, prune=False, busy=(), has=HAS):
    current = parse("lab", has)
    goal = target(current, wanted(*options), prune, frozenset(busy))
    return [" ".join(words) for words in plan("lab", current, goal)]
