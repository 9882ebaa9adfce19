"""Shared folders and mail."""

from typing import Annotated, Any, Literal

from pydantic import Field

from muster.cluster.base import Model


class Folder(Model):
    """A folder that all hosts share."""

    kind: Annotated[
        Literal["existing", "nfs"],
        Field(
            description="existing: each host has it already, Muster mounts nothing. nfs: the host "
            "in the group `storage` serves it and all others mount it."
        ),
    ] = "existing"
    path: Annotated[str, Field(description="Where it is on each host, absolute path.")]
    own_disk: Annotated[
        bool,
        Field(
            description="nfs: the storage host has it on a disk of its own, and shares it only "
            "while that is mounted; without, users would fill the root disk unnoticed."
        ),
    ] = True


class Storage(Model):
    """The folders that all hosts share."""

    home: Annotated[Folder, Field(description="Home directories.")] = Folder(path="/home")
    apps: Annotated[Folder, Field(description="Software and its modules.")] = Folder(path="/apps")
    data: Annotated[Folder, Field(description="Data sets.")] = Folder(path="/data")

    def served(self) -> dict[str, Folder]:
        """Return the folders that the storage host serves, by key."""
        return {key: folder for key, folder in self if folder.kind == "nfs"}


def _sender(values: dict[str, Any]) -> str:
    return f"slurm@{values['domain']}"


class Mail(Model):
    """How mail about jobs leaves the cluster."""

    relay: Annotated[str, Field(description="Host that takes mail by SMTP.")]
    port: Annotated[int, Field(ge=1, le=65535, description="Its TCP port.")] = 25
    domain: Annotated[str, Field(description="Domain of users without an address of their own.")]
    sender: Annotated[
        str,
        Field(
            default_factory=_sender,
            description="Address that mail comes from; without it slurm@`domain`.",
        ),
    ]
