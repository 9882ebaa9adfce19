# SPDX-License-Identifier: Apache-2.0
"""What keeps an image or its program away, said in a sentence with a remedy."""

from collections.abc import Sequence


def printable(text: str) -> str:
    """Return a text without characters that control a terminal: images are made by others."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class ContainerError(Exception):
    """What went wrong and what to do; `muster-container` prints it."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


# What podman, skopeo and the libraries below them say, in small letters; the first that fits
# counts.
_NO_ANSWER = (
    "i/o timeout",
    "connection refused",
    "no route to host",
    "network is unreachable",
    "no such host",
    "temporary failure in name resolution",
    "tls handshake timeout",
    "deadline exceeded",
    "connection reset by peer",
)
_MISSING = ("manifest unknown", "name unknown", "not found")
_REFUSED = ("unauthorized", "authentication required", "denied")
_FULL = ("disk quota exceeded", "no space left on device")
_NO_RANGES = ("newuidmap", "newgidmap", "insufficient uids or gids", "/etc/subuid")


def _has(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)


def full(text: str, folder: str) -> ContainerError | None:
    """Return the error of a full disk or quota, if that is what a program said."""
    if not _has(text.lower(), _FULL):
        return None
    is_quota = "quota" in text.lower()
    return ContainerError(
        f"{folder} takes no more files ({'a quota' if is_quota else 'the disk'} is full): remove "
        "what is not needed there (muster-container remove IMAGE; muster-quota shows quotas), or "
        "use a smaller image"
    )


def of_source(text: str, source: str, machine: str) -> ContainerError:
    """Return the error of a program that could not read an image at its source.

    `machine`: architecture of this host, as images name it.
    """
    said = text.lower()
    if "no image found in" in said and "architecture" in said:
        return ContainerError(
            f"{source} has no image for this machine's architecture, {machine}: name an image that "
            f"is made for {machine}"
        )
    if _has(said, _NO_ANSWER):
        return ContainerError(
            f"the registry of {source} does not answer: check the name and that this host reaches "
            "it (https_proxy), and try again later"
        )
    if _has(said, _REFUSED):
        return ContainerError(
            f"the registry gives {source} to nobody without a login, or has no such image: check "
            "the spelling, or type `skopeo login REGISTRY` and pull again"
        )
    if _has(said, _MISSING) or "no such file or directory" in said:
        return ContainerError(
            f"there is no image {source}: check the spelling and the tag after the colon"
        )
    if "x509" in said or "server gave http response" in said:
        return ContainerError(
            f"the registry of {source} has no certificate that this host trusts: name a registry "
            "with one, or have an administrator install its authority in "
            "/usr/local/share/ca-certificates"
        )
    return ContainerError(
        f"{source} could not be read: {last_line(text)}; check that it is an OCI or Docker image"
    )


def of_unpacking(text: str, image: str, folder: str) -> ContainerError:
    """Return the error of podman that could not unpack an image in a job."""
    said = text.lower()
    error = full(text, folder)
    if error is not None:
        return error
    if _has(said, _NO_RANGES):
        return ContainerError(
            "you have no subordinate UIDs on this node (/etc/subuid): have an administrator "
            "add you to users.people of the definition and run site.yml"
        )
    if "user namespace" in said or "operation not permitted" in said or "clone" in said:
        return ContainerError(
            f"this node lets nobody run containers ({last_line(text)}): have an administrator set "
            "kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0"
        )
    return ContainerError(
        f"{image} could not be unpacked: {last_line(text)}; pull it again with "
        "muster-container pull --again"
    )


def last_line(text: str) -> str:
    """Return the last line that a program wrote, which has what failed in the end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ").rstrip(".") if lines else "it said nothing"
