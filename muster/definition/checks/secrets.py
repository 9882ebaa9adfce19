"""Checks of secrets.yml: that its secrets are usable, and that nobody else can read it."""

import base64
import binascii
import re
import string
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, source_check
from muster.definition.problems import counted
from muster.definition.secret_names import (
    CEPH_KEY,
    DATABASE_PASSWORD,
    MAIL_PASSWORD,
    MUNGE_KEY,
    NAMES,
    misspelt,
)
from muster.definition.sources import SECRETS_FILE, Sources
from muster.definition.yaml_file import KeyPath, readable

_SHORTEST_KEY = 32  # bytes; mungekey(8) makes 128
# Keys that are in public repositories, by how they begin: nebari-slurm's default.
_PUBLIC_KEYS = ("eC36We",)
# Defaults of public projects and of examples, in small letters without signs and digits.
_WORDS = """
    changeme changethis replacewithasecurepasswordinthevault password passwd secret slurm munge
    root admin test example todo fixme mysecret mypassword slurmdbd slurmdbpass mariadb mysql
    xxx dummy default
"""
_PLACEHOLDERS = frozenset(_WORDS.split())


def _data(sources: Sources) -> object:
    """What secrets.yml holds; None where it is empty, encrypted, unreadable or not there."""
    return sources.others[SECRETS_FILE].data if SECRETS_FILE in sources.others else None


def secrets_there(sources: Sources) -> dict[str, object]:
    """What is below `secrets:`; empty where that can't be read."""
    data = _data(sources)
    secrets = data.get("secrets") if isinstance(data, dict) else None
    return secrets if isinstance(secrets, dict) else {}


def _at(sources: Sources, path: KeyPath, message: str, remedy: str) -> Finding:
    line = sources.others[SECRETS_FILE].line(path) or 1
    return Finding(path, message, remedy, SECRETS_FILE, line)


def _secret(sources: Sources, name: str, message: str, remedy: str) -> Finding:
    return _at(sources, ("secrets", name), message, remedy)


_ONE_PER_LINE = "write each secret in its own line below `secrets:`, as in munge_key: TEXT"


@source_check("secrets-shape")
def secrets_shape(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml in which no secret is found: no mapping, or secrets beside `secrets`."""
    data = _data(sources)
    if not isinstance(data, dict):
        if data is not None:
            yield _at(sources, (), "the file is not a mapping", _ONE_PER_LINE)
        return
    for name in data:
        if name in NAMES:
            message = f'"{name}" is beside `secrets`'
            yield _at(sources, (name,), message, "indent it below `secrets:`")
    if not isinstance(data.get("secrets"), dict | None):
        yield _at(sources, ("secrets",), "it is not a mapping", _ONE_PER_LINE)
    for name, value in secrets_there(sources).items():
        if name in NAMES and not isinstance(value, str | None):
            yield _secret(sources, name, "it is not text", "write it as one text, in quotes")


def _encrypted(sources: Sources) -> bool:
    return SECRETS_FILE in sources.others and sources.others[SECRETS_FILE].encrypted


def misspelt_secrets(sources: Sources) -> dict[str, str]:
    """Misspelt keys of secrets.yml: each with the missing secret that is likely meant."""
    return misspelt(secrets_there(sources))


def missing_secret(sources: Sources, name: str, consequence: str, remedy: str) -> Iterator[Finding]:
    """Find that a secret is needed and is not in secrets.yml, under whatever spelling."""
    document = sources.others.get(SECRETS_FILE)
    # Only Ansible can read an encrypted file.
    if document is None or document.encrypted:
        return
    there = (
        name in secrets_there(sources)
        or name in misspelt_secrets(sources).values()
        or any(secrets_shape(sources))
    )
    if not there:
        yield _at(sources, ("secrets",), f"`{name}` is missing: {consequence}", remedy)


@source_check("secret-misspelt")
def secret_misspelt(sources: Sources) -> Iterator[Finding]:
    """A secret whose name is nearly that of one that Muster reads."""
    for name, meant in misspelt_secrets(sources).items():
        yield _secret(sources, name, f'"{name}" has no meaning', f'did you mean "{meant}"?')


@source_check("secrets-readable")
def secrets_readable(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml that others on this machine can read."""
    mode = sources.secrets_mode
    if mode is not None and mode & 0o077 and not _encrypted(sources):
        yield Finding(
            (),
            f"others can read it (mode {mode:04o})",
            "run: chmod 600 on it, or encrypt it with ansible-vault",
            SECRETS_FILE,
            1,
        )


@source_check("secrets-in-git")
def secrets_in_git(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml that is in git in plain text."""
    if sources.secrets_in_git and not _encrypted(sources):
        yield Finding(
            (),
            "it is in git: whoever has a copy of the repository has the secrets",
            "git rm --cached it, and make new secrets: muster secrets",
            SECRETS_FILE,
            1,
        )


@source_check("secret-empty")
def secret_empty(sources: Sources) -> Iterator[Finding]:
    """A secret without a value."""
    for name, value in secrets_there(sources).items():
        if value is None or str(value).strip() == "":
            yield _secret(sources, name, "no value", _another(name))


def _another(name: str) -> str:
    """How to get another secret."""
    if name == CEPH_KEY:
        return "write what `ceph auth get-key` prints for its client on that cluster"
    if name == MAIL_PASSWORD:
        return "write the password of `mail.login` at the relay"
    made = name in (MUNGE_KEY, DATABASE_PASSWORD)
    return "take the line out and run: muster secrets" if made else "write one of your own"


def _words(text: str) -> str:
    """The letters of a text, in lower case."""
    return re.sub(r"[^a-z]", "", text.lower())


@source_check("secret-placeholder")
def secret_placeholder(sources: Sources) -> Iterator[Finding]:
    """A secret that everybody knows, such as `changeme`."""
    for name, value in secrets_there(sources).items():
        text = readable(value)
        # Another check looks at the form of Ceph's key.
        if text and _words(text) in _PLACEHOLDERS and name != CEPH_KEY:
            yield _secret(sources, name, "a word that everybody tries first", _another(name))


@source_check("secret-quote")
def secret_quote(sources: Sources) -> Iterator[Finding]:
    """A password that slurmdbd.conf can't hold: there it is in double quotes, unescaped."""
    text = readable(secrets_there(sources).get(DATABASE_PASSWORD))
    if text and re.search(r'["\n]', text):
        yield _secret(
            sources,
            DATABASE_PASSWORD,
            "a double quote or a line break, which slurmdbd.conf can't hold",
            "take the line out and run: muster secrets",
        )


def _munge_key(sources: Sources) -> str | None:
    """The munge key as written; None where it is absent, empty, encrypted or a placeholder."""
    text = readable(secrets_there(sources).get(MUNGE_KEY))
    if not text or not text.strip() or _words(text) in _PLACEHOLDERS:
        return None
    return text.strip()


def _decoded(key: str) -> bytes | None:
    try:
        return base64.b64decode("".join(key.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


_NEW_KEY = "take the line out, run: muster secrets, and configure all hosts"


@source_check("munge-key-public")
def munge_key_public(sources: Sources) -> Iterator[Finding]:
    """A munge key that is in public repositories, or is made from a public string."""
    key = _munge_key(sources)
    # DeepOps writes password_hash('sha512', salt=cluster name) of a default as the key.
    if key is not None and _is_public(key):
        yield _secret(sources, MUNGE_KEY, "a publicly known key: with it anybody is root", _NEW_KEY)


def _is_public(key: str) -> bool:
    decoded = _decoded(key) or b""
    return key.startswith((*_PUBLIC_KEYS, "$6$")) or decoded.startswith(b"$6$")


@source_check("munge-key-not-base64")
def munge_key_not_base64(sources: Sources) -> Iterator[Finding]:
    """A munge key that is not written in base64."""
    key = _munge_key(sources)
    if key is not None and _decoded(key) is None and not _is_public(key):
        yield _secret(
            sources,
            MUNGE_KEY,
            "no base64",
            "an own key: base64 -w0 /etc/munge/munge.key; a new one: muster secrets",
        )


@source_check("munge-key-short")
def munge_key_short(sources: Sources) -> Iterator[Finding]:
    """A munge key that munged refuses as too short."""
    key = _munge_key(sources)
    decoded = _decoded(key) if key is not None else None
    if key and decoded is not None and len(decoded) < _SHORTEST_KEY and not _is_public(key):
        yield _secret(
            sources,
            MUNGE_KEY,
            f"{counted(len(decoded), 'byte')}, and munged needs {_SHORTEST_KEY}",
            _NEW_KEY,
        )


@source_check("munge-key-not-random")
def munge_key_not_random(sources: Sources) -> Iterator[Finding]:
    """A munge key that is readable text or repeats itself: it can be guessed."""
    key = _munge_key(sources)
    decoded = _decoded(key) if key is not None else None
    if not key or not decoded or len(decoded) < _SHORTEST_KEY or _is_public(key):
        return
    printable = all(chr(byte) in string.printable for byte in decoded)
    # 32 random bytes have about 30 different values; 8 can't be chance.
    if printable or len(set(decoded)) <= 8:
        yield _secret(sources, MUNGE_KEY, "it was not made at random", _NEW_KEY)
