"""What `sacctmgr -nP` prints of a cluster (READS of accounting_state), and options of the module.

The two releases differ in a user whose default account was removed by hand: 22.05 lets that happen,
24.11 refuses it.
"""

NO_LIMITS = "|" * 10
"""The fields of an association after its default QoS; the last one is its partition, for all."""
TRES = "cpu|\nmem|\nenergy|\nnode|\nbilling|\nfs|disk\nvmem|\npages|\n"
QOS = "normal|0|00:00:00||cluster||1.000000" + "|" * 14 + "\n"
FRESH = {
    "clusters": "",
    "tres": TRES,
    "qos": QOS,
    "accounts": "root|default root account|root||root\n",
    "users": "",
    "associations": "",
}
OUTPUT = {
    "22.05": {
        "clusters": "lab\n",
        "tres": TRES,
        "qos": QOS,
        "accounts": (
            "lab-test|first trials|lab||lab-test\n"
            "other|other|other||other\n"
            "root|default root account|root||root\n"
            "left-over|x|y||left-over\n"
        ),
        "users": "ada||None\nalan|lab-test|Operator\nroot|root|Administrator\n",
        "associations": (
            f"root||||1|normal|{NO_LIMITS}\n"
            f"root|root|||1||{NO_LIMITS}\n"
            f"lab-test|||root|3||{NO_LIMITS}\n"
            f"lab-test|ada|||1||{NO_LIMITS}\n"
            f"lab-test|alan|||1||{NO_LIMITS}\n"
            f"other|||root|1||{NO_LIMITS}\n"
        ),
    },
    "24.11": {
        "clusters": "lab\n",
        "tres": TRES + "gres|gpu\n",
        "qos": QOS,
        "accounts": (
            "lab-test|first trials|lab||lab-test\n"
            "other|other|other||other\n"
            "root|default root account|root||root\n"
        ),
        "users": "ada|other|None\nalan|lab-test|Operator\nroot|root|Administrator\n",
        "associations": (
            f"root||||1|normal|{NO_LIMITS}\n"
            f"root|root|||1||{NO_LIMITS}\n"
            f"lab-test|||root|3||{NO_LIMITS}\n"
            f"lab-test|ada|||1||{NO_LIMITS}\n"
            f"lab-test|alan|||1||{NO_LIMITS}\n"
            f"other|||root|1||{NO_LIMITS}\n"
            f"other|ada|||1||{NO_LIMITS}\n"
        ),
    },
}


def account(name, *users, **further):
    """Return one entry of `accounts` as Ansible hands it over."""
    entry = {
        "name": name,
        "parent": None,
        "description": "",
        "organization": "",
        "fairshare": 1,
        "limits": {},
        "qos": None,
        "default_qos": None,
        "coordinators": [],
        "associations": [],
    }
    return entry | {"users": list(users)} | further


def association(user, **further):
    """Return one entry of `associations` of an account."""
    return {
        "user": user,
        "fairshare": None,
        "limits": {},
        "qos": None,
        "default_qos": None,
    } | further


def user(name, default_account=None, admin_level="none"):
    """Return one entry of `users`."""
    return {"name": name, "default_account": default_account, "admin_level": admin_level}
