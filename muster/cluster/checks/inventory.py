"""Checks of the other files of group_vars/all: variables of roles, and secrets."""

import base64
import binascii
import re
import string
from collections.abc import Iterator

from muster.cluster.checks.registry import Finding, nearest, source_check
from muster.cluster.sources import SECRETS_FILE, Sources
from muster.cluster.yamlfile import Vaulted

_MUNGE_KEY = "munge_key"
_DATABASE_PASSWORD = "slurmdbd_password"  # noqa: S105 - its name
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


def _variables(sources: Sources) -> Iterator[tuple[str, str]]:
    """File and name of each variable beside cluster.yml and secrets.yml."""
    for file, document in sources.others.items():
        if file != SECRETS_FILE and isinstance(document.data, dict):
            for name in document.data:
                yield file, name


def _at(sources: Sources, file: str, name: str, message: str, remedy: str) -> Finding:
    return Finding((name,), message, remedy, file, sources.others[file].line((name,)))


_ELSEWHERE = "set it in host_vars or group_vars/<group>, or use the key of `cluster` for it"


@source_check("role-variable")
def role_variable(sources: Sources) -> Iterator[Finding]:
    """A role's variable in group_vars/all that Muster sets itself: the playbook's would win."""
    for file, name in _variables(sources):
        if name in sources.wired:
            yield _at(
                sources,
                file,
                name,
                "Muster sets it from the definition, so it is without effect here",
                _ELSEWHERE,
            )
    # Ansible takes those of a group in hosts.yml for weaker than any file of group_vars/all.
    for path, variables in sources.tree.group_vars.items():
        for name in sources.wired & variables.keys():
            yield Finding(
                (path[-2], "vars", name),
                "Muster sets it from the definition, so it is without effect here",
                _ELSEWHERE,
                "hosts",
                sources.hosts.line((*path, name)),
            )


@source_check("cluster-elsewhere")
def cluster_elsewhere(sources: Sources) -> Iterator[Finding]:
    """`cluster` in a second file: Ansible would take the last one."""
    for file, name in _variables(sources):
        if name == "cluster":
            yield _at(
                sources,
                file,
                name,
                "`cluster` is set in a second file",
                "keep it in cluster.yml alone",
            )


@source_check("cluster-misspelt")
def cluster_misspelt(sources: Sources) -> Iterator[Finding]:
    """A variable that is nearly called `cluster` or `secrets`, which nothing would read."""
    for file, name in _variables(sources):
        near = nearest(name, ("cluster", "secrets"))
        if near and name != near and abs(len(name) - len(near)) <= 1:
            yield _at(sources, file, name, f'"{name}" has no meaning', f'did you mean "{near}"?')


def _secrets(sources: Sources) -> dict[str, object]:
    document = sources.others.get(SECRETS_FILE)
    data = document.data if document else None
    secrets = data.get("secrets") if isinstance(data, dict) else None
    return secrets if isinstance(secrets, dict) else {}


def _secret(sources: Sources, name: str, message: str, remedy: str) -> Finding:
    line = sources.others[SECRETS_FILE].line(("secrets", name))
    return Finding(("secrets", name), message, remedy, SECRETS_FILE, line)


def _encrypted(sources: Sources) -> bool:
    return SECRETS_FILE in sources.others and sources.others[SECRETS_FILE].encrypted


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
    for name, value in _secrets(sources).items():
        if value is None or str(value).strip() == "":
            yield _secret(sources, name, "no value", "take the line out and run: muster secrets")


def _words(text: str) -> str:
    """The letters of a text, small."""
    return re.sub(r"[^a-z]", "", text.lower())


@source_check("secret-placeholder")
def secret_placeholder(sources: Sources) -> Iterator[Finding]:
    """A secret that everybody knows, such as `changeme`."""
    for name, value in _secrets(sources).items():
        readable = isinstance(value, str) and not isinstance(value, Vaulted)
        if readable and _words(str(value)) in _PLACEHOLDERS:
            yield _secret(
                sources,
                name,
                "a word that everybody tries first",
                "take the line out and run: muster secrets",
            )


@source_check("secret-quote")
def secret_quote(sources: Sources) -> Iterator[Finding]:
    """A password that slurmdbd.conf can't hold: it stands there in double quotes, unescaped."""
    value = _secrets(sources).get(_DATABASE_PASSWORD)
    readable = isinstance(value, str) and not isinstance(value, Vaulted)
    if readable and re.search(r'["\n]', str(value)):
        yield _secret(
            sources,
            _DATABASE_PASSWORD,
            "a double quote or a line break, which slurmdbd.conf can't hold",
            "take the line out and run: muster secrets",
        )


def _munge_key(sources: Sources) -> str | None:
    """The munge key as written; None where it is absent, empty, encrypted or a placeholder."""
    value = _secrets(sources).get(_MUNGE_KEY)
    if not isinstance(value, str) or isinstance(value, Vaulted) or not value.strip():
        return None
    return None if _words(value) in _PLACEHOLDERS else value.strip()


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
        yield _secret(
            sources, _MUNGE_KEY, "a publicly known key: with it anybody is root", _NEW_KEY
        )


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
            _MUNGE_KEY,
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
            _MUNGE_KEY,
            f"{len(decoded)} bytes, and munged wants {_SHORTEST_KEY}",
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
    # 32 random bytes have about 30 different values; 8 is beyond any accident.
    if printable or len(set(decoded)) <= 8:
        yield _secret(sources, _MUNGE_KEY, "it was not made at random", _NEW_KEY)
