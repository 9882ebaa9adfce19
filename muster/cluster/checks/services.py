"""Checks of shared folders and mail."""

import ipaddress
import posixpath
import re
from collections.abc import Iterator

from muster.cluster import patterns
from muster.cluster.checks.registry import Finding, check
from muster.cluster.definition import Definition
from muster.cluster.services import Storage

_DOMAIN = re.compile(r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*")
# Folders of the system: files of one host can't be shared with the others.
_SYSTEM = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys")
_SYSTEM_PARENTS = ("/etc", "/dev", "/proc", "/sys", "/boot", "/run")


def _folders(d: Definition) -> dict[str, str]:
    return {key: getattr(d.cluster.storage, key).path for key in Storage.model_fields}


def _below(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")


@check("folder-not-absolute")
def folder_not_absolute(d: Definition) -> Iterator[Finding]:
    """A shared folder whose path depends on where one is."""
    for key, path in _folders(d).items():
        if not path.startswith("/"):
            yield Finding(
                ("storage", key, "path"), f'"{path}" is no absolute path', "begin it with /"
            )


@check("folder-not-plain")
def folder_not_plain(d: Definition) -> Iterator[Finding]:
    """A shared folder with .., a double or last slash, or spaces in its path."""
    for key, path in _folders(d).items():
        plain = path == posixpath.normpath(path) and not re.search(r"\s|^//", path)
        if path.startswith("/") and not plain:
            yield Finding(
                ("storage", key, "path"),
                f'"{path}" is not in its shortest form',
                "leave out spaces, .., double slashes and the slash at the end",
            )


@check("folder-of-the-system")
def folder_of_the_system(d: Definition) -> Iterator[Finding]:
    """A shared folder that belongs to each host."""
    for key, path in _folders(d).items():
        below = any(_below(path, parent) for parent in _SYSTEM_PARENTS)
        if path in (*_SYSTEM, "/usr", "/var", "/tmp") or below:  # noqa: S108 (not used as one)
            yield Finding(
                ("storage", key, "path"),
                f'"{path}" belongs to each host',
                "share a folder of its own, such as /home, /apps or /srv/data",
            )


@check("folders-nested")
def folders_nested(d: Definition) -> Iterator[Finding]:
    """A shared folder inside another one."""
    folders = list(_folders(d).items())
    for index, (key, path) in enumerate(folders):
        for other_key, other in folders[:index]:
            if _below(path, other) or _below(other, path):
                yield Finding(
                    ("storage", key, "path"),
                    f'"{path}" and storage.{other_key} "{other}" lie in each other',
                    "give each a folder of its own",
                )


@check("folder-not-exportable")
def folder_not_exportable(d: Definition) -> Iterator[Finding]:
    """A folder to be served whose name the NFS server's files would take apart."""
    for key, folder in d.cluster.storage.served().items():
        # White space is refused for any folder.
        if re.search(r"[^A-Za-z0-9._/+\s-]", folder.path):
            yield Finding(
                ("storage", key, "path"),
                f'"{folder.path}" can\'t be served by NFS',
                "use letters, digits and _ . + - between the slashes",
            )


@check("own-disk-without-nfs")
def own_disk_without_nfs(d: Definition) -> Iterator[Finding]:
    """Whether a folder has a disk of its own, said of one that Muster does not serve."""
    for key, folder in d.cluster.storage:
        if folder.kind != "nfs" and "own_disk" in folder.model_fields_set:
            yield Finding(
                ("storage", key, "own_disk"),
                "Muster does not serve this folder, so it has no say here",
                "take it out, or make the folder kind: nfs",
            )


@check("folder-without-server", reads_hosts=True)
def folder_without_server(d: Definition) -> Iterator[Finding]:
    """A folder to be served, and no host that serves it."""
    if not d.hosts.groups.get("storage"):
        for key in d.cluster.storage.served():
            yield Finding(
                ("storage", key, "kind"),
                "no host is in the group `storage` to serve it",
                "add one to hosts.yml; it may be the controller",
            )


@check("two-storage-hosts", reads_hosts=True)
def two_storage_hosts(d: Definition) -> Iterator[Finding]:
    """More than one host to serve the same folders."""
    if d.cluster.storage.served():
        for host in d.hosts.groups.get("storage", ())[1:]:
            yield Finding(
                ("storage", host),
                "Muster does not set up a second storage host yet",
                "leave one host in `storage`",
                "hosts",
            )


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_DOMAIN.fullmatch(text)) and not text.replace(".", "").isdigit()
    return True


@check("mail-relay")
def mail_relay(d: Definition) -> Iterator[Finding]:
    """A mail relay that is neither a host name nor an address."""
    if d.cluster.mail and not _is_host(d.cluster.mail.relay):
        yield Finding(
            ("mail", "relay"),
            f'"{d.cluster.mail.relay}" is no host',
            "write its name or address alone; the port goes into `port`",
        )


@check("mail-domain")
def mail_domain(d: Definition) -> Iterator[Finding]:
    """A mail domain that can't be what follows the @."""
    if d.cluster.mail and not _DOMAIN.fullmatch(d.cluster.mail.domain):
        yield Finding(
            ("mail", "domain"),
            f'"{d.cluster.mail.domain}" is no domain',
            "write what follows the @, such as example.org",
        )


@check("mail-sender")
def mail_sender(d: Definition) -> Iterator[Finding]:
    """A sender that is no address."""
    mail = d.cluster.mail
    if (
        mail
        and not re.fullmatch(patterns.EMAIL, mail.sender)
        and mail.sender != f"slurm@{mail.domain}"
    ):
        yield Finding(
            ("mail", "sender"),
            f'"{mail.sender}" is no address',
            "write it as slurm@example.org, or leave it out",
        )
