"""Spellings of names that SLURM, DNS, Linux and Google Cloud take, for checks and JSON schema."""

import ipaddress
import re

# ClusterName is lower case (slurm.conf(5)). The name is also the prefix of names in Google Cloud,
# where ids of service accounts have the lowest limit: 30 characters, 11 of them "-controller".
CLUSTER_NAME = r"[a-z](?:[a-z0-9-]{0,17}[a-z0-9])?"
# A cloud node is <cluster>-<set>-<n>, a host name of at most 63 characters.
NODE_SET_NAME = r"[a-z](?:[a-z0-9-]{0,28}[a-z0-9])?"
PARTITION_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# A label of RFC 1123. In lower case: DNS takes both, SLURM tells NodeName=A from NodeName=a. Not a
# number: programs read 10 and 0xa as the address 0.0.0.10 (inet_aton(3)).
HOST_NAME = r"(?![0-9]+$|0x[0-9a-f]*$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# useradd(8) with the limits of all four distributions.
LOGIN_NAME = r"[a-z][a-z0-9_-]{0,31}"
# Of a directory: sssd.conf and slurm.conf part names by commas, and sacctmgr(1) stores logins in
# small letters.
DIRECTORY_LOGIN = r"[a-z_][a-z0-9_.-]{0,31}"
DIRECTORY_GROUP = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
# RFC 4514: ATTRIBUTE=VALUE, parted by commas. No question mark, which parts a base from a filter
# in sssd.conf (sssd-ldap(5), ldap_search_base).
_RDN = r" *[A-Za-z][A-Za-z0-9-]*=(?:[^,\\?\x00-\x1f]|\\[^\x00-\x1f?])+"
DISTINGUISHED_NAME = rf"{_RDN}(?:,{_RDN})*"
# slurmdbd's tables tell accounts apart by 42 characters (accounting_storage_mysql.c, `acct(42)`).
ACCOUNT_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,41}"
# As sacctmgr prints it again: it stores names in small letters.
QOS_NAME = r"[a-z][a-z0-9_.-]{0,39}"
# Lists of reservations (`--reservation`) are parted by commas.
RESERVATION_NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,39}"
# As scontrol(1) reads it; it reads other notations too, some of which depend on the day.
DATE_TIME = r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}"
# One folder: no slash, and no dot at its beginning, which would hide it.
PROJECT_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
# Labels as of hosts; the last one is no number, which would be an address.
DOMAIN = (
    r"(?=.{1,253}$)(?!(?:.*\.)?[0-9]+$)"
    r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
# RFC 5321: 64 characters before the @, single dots. The first one as muster_mail.py takes it.
EMAIL = (
    r"(?=[^@]{1,64}@)[A-Za-z0-9_][A-Za-z0-9!#$%&'*+/=?^_`{|}~-]*"
    r"(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" + DOMAIN
)
# slurmdbd names it in its statements without quotes.
DATABASE_NAME = r"[A-Za-z0-9_]{0,63}[A-Za-z_][A-Za-z0-9_]{0,63}"
DATABASE_LOGIN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}"
MAIL_LOGIN = r"[A-Za-z0-9._%+@-]+"
# Limits of time, sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours and on.
SLURM_TIME = r"[0-9]+(?::[0-9]+){0,2}|[0-9]+-[0-9]+(?::[0-9]+){0,2}|UNLIMITED|INFINITE"


def whole(pattern: str) -> dict[str, str]:
    """Return a part of a JSON schema: the whole text has to match."""
    return {"pattern": f"^(?:{pattern})$"}


def is_host(text: str) -> bool:
    """Whether `text` is an address or can be a host's name."""
    return is_address(text) or bool(re.fullmatch(DOMAIN, text))


def is_ldap_server(text: str) -> bool:
    """Whether `text` is the address of an LDAP server: ldaps://HOST, or with a port."""
    match = re.fullmatch(r"ldaps?://(\[[0-9a-fA-F:.]+\]|[^\[\]:/]+)(?::([0-9]{1,5}))?/?", text)
    if match is None:
        return False
    host, port = match[1], int(match[2] or 1)
    return is_host(host.strip("[]")) and 1 <= port <= 65535


def is_network(text: str) -> bool:
    """Whether sshd takes `text` as an address or a network: ADDRESS/LENGTH, host bits zero."""
    if not re.fullmatch(r"[0-9a-fA-F.:]+(/[0-9]{1,3})?", text):
        return False
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def is_address(text: str) -> bool:
    """Whether `text` is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
