"""QoS and limits of the definition in sacctmgr's words, as the role `accounts` takes them."""

from copy import deepcopy
from typing import Any

from muster.definition import Definition, validate
from muster.render import limits, people

CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-12",
    "users": {"people": {"ada": {"uid": 20001}, "bob": {"uid": 20002}}},
    "nodes": {
        "gpu": {
            "sockets": 1,
            "cores_per_socket": 8,
            "memory_mib": 65536,
            "gpus": {"count": 4, "type": "h100"},
        }
    },
    "partitions": {"gpu": {"nodes": ["gpu"], "default": True}},
    "accounts": {
        "lab": {
            "users": ["ada", "bob"],
            "qos": ["normal", "low"],
            "coordinators": ["ada"],
            "grp_tres_run_mins": {"gpu": 5760, "cpu": 999},
            "associations": {"bob": {"fairshare": 3, "max_wall": "00:30:01", "max_jobs": 2}},
        },
        "below": {"parent": "lab", "users": ["ada"], "default_qos": "normal"},
    },
    "qos": {
        "normal": {
            "priority": 10,
            "preempt": ["low"],
            "max_wall": "1-00:00:00",
            "max_tres_per_user": {"gpu": 2, "gpu_types": {"h100": 1}, "memory_mib": 0},
        },
        "low": {"deny_on_limit": False, "grace_seconds": 60, "max_wall": "UNLIMITED"},
    },
}
GROUPS = {
    name: ["one"] for name in ("controller", "database", "login", "compute", "gpu", "storage")
}


def definition(**scheduling: Any) -> Definition:
    cluster = deepcopy(CLUSTER)
    cluster["scheduling"] = scheduling
    return validate(cluster, GROUPS)


def test_qos_have_sacctmgr_s_names() -> None:
    assert limits.qos(definition()) == [
        {
            "name": "normal",
            "limits": {
                "Priority": 10,
                "GraceTime": 0,
                "MaxWallDurationPerJob": 1440,
                "MaxTRESPerUser": {"gres/gpu": 2, "gres/gpu:h100": 1, "mem": 0},
                "Preempt": ["low"],
                "PreemptMode": "cluster",
                "Flags": {"DenyOnLimit": True},
            },
        },
        {
            "name": "low",
            "limits": {
                "Priority": 0,
                "GraceTime": 60,
                "Preempt": [],
                "PreemptMode": "requeue",
                "Flags": {"DenyOnLimit": False},
            },
        },
    ]


def test_accounts_and_their_users_have_limits() -> None:
    top, below = people.accounts(definition())
    assert top["qos"] == ["normal", "low"]
    assert top["coordinators"] == ["ada"]
    assert top["limits"] == {
        "GrpTRESRunMins": {"gres/gpu": 5760, "cpu": 999},
        "MaxSubmitJobs": 2000,
    }
    assert top["associations"] == [
        {
            "user": "bob",
            "fairshare": 3,
            # Rounded up: SLURM counts in minutes.
            "limits": {"MaxWallDurationPerJob": 31, "MaxJobs": 2},
            "qos": None,
            "default_qos": None,
        }
    ]
    # The bound of the account at the top holds below, also where one was set before.
    assert below["limits"] == {"MaxSubmitJobs": None}
    assert below["default_qos"] == "normal"


def test_the_bound_of_jobs_is_an_account_s_own_or_none() -> None:
    assert people.accounts(definition(max_submit_jobs=None))[0]["limits"]["MaxSubmitJobs"] is None
    cluster = deepcopy(CLUSTER)
    cluster["accounts"]["lab"]["max_submit_jobs"] = 5
    assert people.accounts(validate(cluster, GROUPS))[0]["limits"]["MaxSubmitJobs"] == 5


def test_shares_that_the_definition_does_not_say_are_left_as_they_are() -> None:
    cluster = deepcopy(CLUSTER)
    del cluster["accounts"]["lab"]["associations"]["bob"]["fairshare"]
    [of_bob] = people.accounts(validate(cluster, GROUPS))[0]["associations"]
    assert of_bob["fairshare"] is None


def test_who_is_gone_has_no_limits() -> None:
    cluster = deepcopy(CLUSTER)
    for person in cluster["users"]["people"].values():
        person["state"] = "absent"
    account = people.accounts(validate(cluster, GROUPS))[0]
    assert (account["coordinators"], account["associations"]) == ([], [])
