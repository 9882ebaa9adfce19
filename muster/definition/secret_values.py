"""What a secret must be: for `muster check`, and for the play that asks Ansible for the values."""

import base64
import binascii
import itertools
import re
import string
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from muster.definition.problems import counted
from muster.definition.secret_names import (
    CEPH_KEY,
    DATABASE_PASSWORD,
    DIRECTORY_PASSWORD,
    MAIL_PASSWORD,
    MUNGE_KEY,
)

SHORTEST_KEY = 32
"""Bytes of a munge key; munged refuses less, mungekey(8) makes 128."""

_SHORTEST_PASSWORD = 10
_FEWEST_CHARACTERS = 5
_FEWEST_BYTES = 8
# Keys that are in public repositories, by how they begin: nebari-slurm's default.
_PUBLIC_KEYS = ("eC36We",)
# Defaults of public projects and of examples, in small letters without signs and digits.
_WORDS = """
    changeme changethis replacewithasecurepasswordinthevault password passwd secret slurm munge
    root admin test example todo fixme mysecret mypassword slurmdbd slurmdbpass mariadb mysql
    xxx dummy default letmein welcome qwerty slurmpass slurmpassword slurmdbpassword
    yourpassword yourpasswordhere
"""
_PLACEHOLDERS = frozenset(_WORDS.split())
_ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890123456789", "qwertyuiopasdfghjklzxcvbnm")
_MADE = "run: muster secrets"
_NEW_KEY = "take the line out, run: muster secrets, and configure all hosts"


@dataclass(frozen=True)
class Wrong:
    """What is wrong with the value of a secret."""

    kind: str
    """Name of the check that says so."""
    message: str
    remedy: str


def wrong(name: str, value: object) -> Wrong | None:
    """Return what is wrong with a secret that Muster reads or a site has; None: nothing is."""
    if value is None or str(value).strip() == "":
        return Wrong("secret-empty", "no value", another(name))
    if not isinstance(value, str):
        return Wrong("secrets-shape", "it is not text", "write it as one text, in quotes")
    # What Ceph gives, and passwords elsewhere, are not for us to choose.
    if name != CEPH_KEY and (_words(value) in _PLACEHOLDERS or re.fullmatch("<.*>", value.strip())):
        return Wrong("secret-placeholder", "a word that everybody tries first", another(name))
    check = _RULES.get(name)
    return check(value) if check else None


def another(name: str) -> str:
    """Return how to get another secret."""
    if name == CEPH_KEY:
        return "write what `ceph auth get-key` prints for its client on that cluster"
    if name == MAIL_PASSWORD:
        return "write the password of `mail.login` at the relay"
    if name == DIRECTORY_PASSWORD:
        return "write the password of `users.directory.bind_dn`"
    made = name in (MUNGE_KEY, DATABASE_PASSWORD)
    return "take the line out and run: muster secrets" if made else "write one of your own"


def needed(cluster: Any, groups: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the secrets that hosts need, each with what fails without it and how to get it.

    `cluster`: the definition as data, of whatever shape. `groups`: those that have hosts.
    """
    wanted = {MUNGE_KEY: ("munged would have no key", _MADE)}
    if "database" in groups:
        wanted[DATABASE_PASSWORD] = ("slurmdbd could not log in to the database", _MADE)
    if _below(cluster, "storage", "ceph", "monitors"):
        wanted[CEPH_KEY] = (
            "the hosts could not mount the folders of `storage.ceph`",
            "write down what `ceph auth get-key` prints for its client on that cluster",
        )
    # In the cloud a person adds it after `pulumi up`, and the role mail says where.
    on_machines = _below(cluster, "cloud") is None
    if _below(cluster, "mail", "login") and "controller" in groups and on_machines:
        wanted[MAIL_PASSWORD] = (
            "the relay would take no mail from `mail.login`",
            "write the password of that login at the relay",
        )
    if _below(cluster, "users", "directory", "bind_dn"):
        wanted[DIRECTORY_PASSWORD] = (
            "the hosts could not read the directory",
            "write the password of `users.directory.bind_dn`",
        )
    return wanted


def missing(wanted: Mapping[str, tuple[str, str]], there: Collection[str]) -> Wrong | None:
    """Return which of the needed secrets are not there; None: all are."""
    names = [name for name in wanted if name not in there]
    if not names:
        return None
    said = " and ".join(f"`{name}`" for name in names)
    consequences, remedies = zip(*(wanted[name] for name in names), strict=True)
    return Wrong(
        "secret-missing",
        f"{said} {'is' if len(names) == 1 else 'are'} missing: {', '.join(consequences)}",
        ", and ".join(dict.fromkeys(remedies)),
    )


def _below(data: object, *keys: str) -> object:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _words(text: str) -> str:
    """The letters of a text, in lower case."""
    return re.sub(r"[^a-z]", "", text.lower())


def _password(text: str) -> Wrong | None:
    """What is wrong with the database's password."""
    if re.search(r'["\n]', text):
        return Wrong(
            "secret-quote",
            "a double quote or a line break, which slurmdbd.conf can't hold",
            "take the line out and run: muster secrets",
        )
    if text != text.strip():
        return Wrong(
            "secret-blanks", "a blank at an end, which nobody sees", another(DATABASE_PASSWORD)
        )
    few = len(text) < _SHORTEST_PASSWORD or len(set(text)) < _FEWEST_CHARACTERS
    if few or any(text.lower() in row for row in _ROWS):
        return Wrong("secret-weak", "it can be guessed", another(DATABASE_PASSWORD))
    return None


def _directory_password(text: str) -> Wrong | None:
    """What is wrong with the password for the directory: in sssd.conf it is one line."""
    if text == text.strip() and text.isprintable():
        return None
    message = "a blank at an end or a line break, which sssd.conf can't hold"
    return Wrong("secret-blanks", message, another(DIRECTORY_PASSWORD))


def _munge_key(text: str) -> Wrong | None:
    """What is wrong with a munge key."""
    key = text.strip()
    decoded = _decoded(key)
    # DeepOps writes password_hash('sha512', salt=cluster name) of a default as the key.
    if key.startswith((*_PUBLIC_KEYS, "$6$")) or (decoded or b"").startswith(b"$6$"):
        return Wrong("munge-key-public", "a publicly known key: with it anybody is root", _NEW_KEY)
    if decoded is None:
        return Wrong(
            "munge-key-not-base64",
            "no base64",
            "an own key: base64 -w0 /etc/munge/munge.key; a new one: muster secrets",
        )
    if len(decoded) < SHORTEST_KEY:
        size = f"{counted(len(decoded), 'byte')}, and munged needs {SHORTEST_KEY}"
        return Wrong("munge-key-short", size, _NEW_KEY)
    if not _is_random("".join(key.split()), decoded):
        return Wrong("munge-key-not-random", "it was not made at random", _NEW_KEY)
    return None


def _is_random(text: str, key: bytes) -> bool:
    """Whether nothing says that a key was not made at random. `text`: the key in base64."""
    printable = all(chr(byte) in string.printable for byte in key)
    # 32 random bytes have about 30 different values, and 44 characters some 30 of 64: digits alone
    # or 8 values can't be chance.
    few = len(set(key)) <= _FEWEST_BYTES or len(set(text.rstrip("="))) <= len(string.hexdigits[:16])
    repeats = any(key == (key[:n] * len(key))[: len(key)] for n in range(1, len(key) // 2 + 1))
    steps = {(after - before) % 256 for before, after in itertools.pairwise(key)}
    return not (printable or few or repeats or len(steps) == 1)


def _decoded(key: str) -> bytes | None:
    try:
        return base64.b64decode("".join(key.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _ceph_key(text: str) -> Wrong | None:
    """What is wrong with a key of Ceph."""
    if _is_ceph_key(text):
        return None
    return Wrong(
        "ceph-key-shape",
        "this is no key of Ceph",
        "write what `ceph auth get-key client.USER` prints on that cluster, and no more",
    )


def _is_ceph_key(text: str) -> bool:
    """Whether it is a key as Ceph encodes it.

    In base64 a number for the cipher (2 bytes), a time (8), the secret's length (2), the secret:
    CryptoKey::encode, src/auth/Crypto.cc.
    """
    try:
        plain = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return len(plain) > 12 and int.from_bytes(plain[10:12], "little") == len(plain) - 12


_RULES: dict[str, Callable[[str], Wrong | None]] = {
    MUNGE_KEY: _munge_key,
    DATABASE_PASSWORD: _password,
    CEPH_KEY: _ceph_key,
    DIRECTORY_PASSWORD: _directory_password,
}
