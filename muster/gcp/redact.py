"""Takes secrets out of requests and answers of Google's APIs; pure.

What is not known to be harmless is left out: the values of metadata that is not Muster's own, the
consoles of VMs, contents of objects and secrets. In all other texts, what looks like a key, a token
or a password is replaced. Names, email addresses and policies stay.
"""

import re
from collections.abc import Iterable
from typing import Any

REDACTED = "(redacted)"
SHORTEST = 8
"""Characters of a known secret from which on it is looked for in texts."""

# Keys of JSON and of queries, without case, hyphens and underscores, whose value is left out.
_SECRET_KEYS = re.compile(
    r"""
    payload                     # of a secret's version, with its checksum
    | .* (password|passwd|passphrase|secret|privatekey|privatekeydata|apikey|credentials?)
    | (?! (next)? page) .* token  # which page of a list comes next is no secret
    | assertion | authorization | signature | xgoogsignature | signedblob | signedjwt | signedurl
    | rawkey | rsaencryptedkey  # keys of disks
    | contents                  # of a VM's console
    | key | uploadid            # of a query: an API key; who has the id may upload
    """,
    re.VERBOSE,
)
# In bodies these are names: of a metadata item, and of an object that is uploaded.
_NAMES_IN_BODIES = frozenset({"key"})
# Metadata and guest attributes whose values Muster makes, or that only say yes or no.
_OPEN_METADATA = re.compile(
    r"muster-.*|report|enable-oslogin|enable-guest-attributes|block-project-ssh-keys"
)
_TEXTS = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"-----BEGIN [A-Z0-9 ]*-----.*?(-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL),
        # Public keys too: https://man.openbsd.org/sshd#AUTHORIZED_KEYS_FILE_FORMAT
        (r"\b(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+ +AAAA[A-Za-z0-9+/=]+", 0),
        (r"\bya29\.[\w.-]+", 0),
        (r"\b1//[\w-]{20,}", 0),
        (r"\beyJ[\w-]+\.[\w-]+\.[\w-]*", 0),
        (r"\bAIza[\w-]{30,}", 0),
        (r"\bGOCSPX-[\w-]+", 0),
        (r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)", 0),
        (r"(?<=Bearer )[\w.~+/=-]+", re.IGNORECASE),
        (r"\$[0-9a-z]{1,8}\$[./0-9A-Za-z$=,-]{16,}", 0),  # crypt(5)
    )
)
# password=..., "token": "..."
_ASSIGNED = re.compile(
    r"""((?:passw(?:or)?d|passphrase|secret|token)["']?\s*[=:]\s*["']?)[^\s"',;]+""", re.IGNORECASE
)


def value(found: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a copy of decoded JSON without secrets.

    Args:
        found: the JSON.
        secrets: texts that are known to be secret; shorter ones than `SHORTEST` are ignored.

    """
    known = [secret for secret in secrets if len(secret) >= SHORTEST]
    return _value(found, known)


def query(pairs: Iterable[tuple[str, str]], secrets: Iterable[str] = ()) -> dict[str, str]:
    """Return the parameters of a query without secrets; of one that is repeated, all values."""
    known = list(secrets)
    shown: dict[str, str] = {}
    for name, found in pairs:
        said = REDACTED if _SECRET_KEYS.fullmatch(_plain(name)) else text(found, known)
        shown[name] = f"{shown[name]}, {said}" if name in shown else said
    return shown


def text(found: str, secrets: Iterable[str] = ()) -> str:
    """Return a text in which what looks like a secret, or is a known one, is replaced."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            found = found.replace(secret, REDACTED)
    for pattern in _TEXTS:
        found = pattern.sub(REDACTED, found)
    return _ASSIGNED.sub(rf"\1{REDACTED}", found)


def _value(found: Any, known: list[str]) -> Any:
    if isinstance(found, dict):
        if "value" in found and not _OPEN_METADATA.fullmatch(str(found.get("key", "report"))):
            found = {**found, "value": REDACTED}
        return {
            text(name, known): REDACTED if _is_secret(name) else _value(below, known)
            for name, below in found.items()
        }
    if isinstance(found, list):
        return [_value(item, known) for item in found]
    return text(found, known) if isinstance(found, str) else found


def _is_secret(name: str) -> bool:
    plain = _plain(name)
    return plain not in _NAMES_IN_BODIES and bool(_SECRET_KEYS.fullmatch(plain))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()
