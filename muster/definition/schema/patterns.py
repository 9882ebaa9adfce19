"""Spellings of names that SLURM, DNS, Linux and Google Cloud take, for checks and JSON schema."""

import ipaddress
import re

# ClusterName is lower case (slurm.conf(5)). The name is also the prefix of names in Google Cloud,
# where ids of service accounts have the lowest limit: 30 characters, 11 of them "-controller".
CLUSTER_NAME = r"[a-z](?:[a-z0-9-]{0,17}[a-z0-9])?"
# A cloud node is <cluster>-<set>-<n>, a host name of at most 63 characters.
NODE_SET_NAME = r"[a-z](?:[a-z0-9-]{0,28}[a-z0-9])?"
PARTITION_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# A label of RFC 1123. In lower case: DNS takes both, SLURM tells NodeName=A from NodeName=a.
HOST_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# useradd(8) with the limits of all four distributions.
LOGIN_NAME = r"[a-z][a-z0-9_-]{0,31}"
ACCOUNT_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# One folder: no slash, and no dot at its beginning, which would hide it.
PROJECT_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
EMAIL = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*"
DOMAIN = r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*"
MAIL_LOGIN = r"[A-Za-z0-9._%+@-]+"
# Limits of time, sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours and on.
SLURM_TIME = r"\d+(?::\d+){0,2}|\d+-\d+(?::\d+){0,2}|UNLIMITED|INFINITE"


def whole(pattern: str) -> dict[str, str]:
    """Return a part of a JSON schema: the whole text has to match."""
    return {"pattern": f"^(?:{pattern})$"}


def is_host(text: str) -> bool:
    """Whether `text` is an address or can be a host's name."""
    is_name = re.fullmatch(DOMAIN, text) and not text.replace(".", "").isdigit()
    return is_address(text) or bool(is_name)


def is_address(text: str) -> bool:
    """Whether `text` is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
