"""Checks of people's ssh keys: public, whole, strong, one person's."""

import base64
import binascii
import re
from collections.abc import Iterator

from muster.definition.checks.rows import SharedValue, Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.yaml_file import KeyPath

_LEAST_RSA_BITS = 2048  # NIST SP 800-131A; sshd of Debian 13 refuses fewer than 1024 at all
# What follows the type in a key's blob: a text, a number of bytes, or anything (RFC 4253, 5656,
# 8709, and PROTOCOL.u2f of OpenSSH). A point of a curve: 4, and two numbers of the curve's size.
_BLOBS: dict[str, tuple[bytes | int | None, ...]] = {
    "ssh-ed25519": (32,),
    "ssh-rsa": (None, None),
    "ecdsa-sha2-nistp256": (b"nistp256", 65),
    "ecdsa-sha2-nistp384": (b"nistp384", 97),
    "ecdsa-sha2-nistp521": (b"nistp521", 133),
    "sk-ssh-ed25519@openssh.com": (32, None),
    "sk-ecdsa-sha2-nistp256@openssh.com": (b"nistp256", 65, None),
}
_SSH_KEYS = at("users.people.<name>.ssh_keys.[]")


def _keys_without_comments(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for path, key in _SSH_KEYS(d):
        yield path, " ".join(_fields(key)[:2])


def _fields(key: str) -> list[str]:
    """Type, blob and comment, as sshd parts them: by the blanks of ASCII alone."""
    return [word for word in re.split("[ \t]+", key) if word]


def _is_private(key: str) -> bool:
    return "PRIVATE KEY" in key or key.startswith("PuTTY-User-Key-File")


def _is_dsa(key: str) -> bool:
    return key.startswith("ssh-dss ")


def _rsa_bits(key: str) -> int | None:
    """Length of an RSA key; None for other keys."""
    parts = _parts(key)
    if not parts or parts[0] != b"ssh-rsa" or len(parts) != 3:
        return None
    return int.from_bytes(parts[2], "big").bit_length()


def _is_strong(key: str) -> bool:
    bits = _rsa_bits(key)
    return not _is_dsa(key) and (bits is None or bits >= _LEAST_RSA_BITS)


def _is_public(key: str) -> bool:
    """Whether it is a type, and the whole key of that type."""
    kind, *parts = _parts(key) or [b""]
    wanted = _BLOBS.get(kind.decode(errors="replace"))
    return (
        wanted is not None
        and _fields(key)[0].encode() == kind
        and len(parts) == len(wanted)
        and all(map(_fits, parts, wanted))
    )


def _has_options(key: str) -> bool:
    """Whether it is no key before, and a whole one from the word of a type on."""
    words = _fields(key)
    return not _is_public(key) and any(
        word in _BLOBS and _is_public(" ".join(words[place : place + 2]))
        for place, word in enumerate(words)
    )


def _fits(part: bytes, wanted: bytes | int | None) -> bool:
    if wanted is None:
        return part != b""
    return part == wanted if isinstance(wanted, bytes) else len(part) == wanted


def _parts(key: str) -> list[bytes]:
    """The parts of a key's blob, each with its length before it (RFC 4253, 6.6); none if cut."""
    words = _fields(key)
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error, ValueError):
        return []
    parts = []
    while blob:
        end = 4 + int.from_bytes(blob[:4], "big")
        if len(blob) < max(end, 4):
            return []
        parts.append(blob[4:end])
        blob = blob[end:]
    return parts


# fmt: off
table(
    Spelling("ssh-key-private",
        "A private key where a public one belongs",
        _SSH_KEYS, lambda key: not _is_private(key),
        "a private key: anybody who can read this file can log in with it",
        "make a new pair (ssh-keygen), give the .pub file, and throw this key away"),
    Spelling("ssh-key-weak",
        "A DSA key, which sshd refuses, or an RSA key of less than 2048 bits",
        _SSH_KEYS, _is_strong,
        '"{value:.24}..." is a weak key: DSA, or RSA with less than 2048 bits',
        "make a new pair: ssh-keygen -t ed25519"),
    Spelling("ssh-key-options",
        "A public key behind options of sshd, such as from=: Muster takes the key alone",
        _SSH_KEYS, lambda key: _is_private(key) or not _has_options(key),
        '"{value:.24}..." has more before the key',
        "take it out: options of a key are not taken"),
    Spelling("ssh-key-malformed",
        "Something that sshd would not read as a public key, such as one that was cut short",
        _SSH_KEYS,
        lambda key: any(is_so(key) for is_so in (_is_private, _is_dsa, _has_options, _is_public)),
        '"{value:.24}..." is no whole public key',
        "copy the whole line of the .pub file: type, key, comment"),
    SharedValue("ssh-key-twice",
        "One key for two people: the log would not show who logged in",
        _keys_without_comments,
        "{first[2]} has this key already",
        "give each person their own"),
)
# fmt: on
