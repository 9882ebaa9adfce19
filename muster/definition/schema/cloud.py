"""What a cluster in Google Cloud has besides its nodes."""

from typing import Annotated

from pydantic import Field

from muster.definition.schema.base import Model
from muster.definition.schema.node_sets import Disk

STATE = "state"
"""What the controller's state disk is called in its VM, beside the disks of folders."""
FOLDER_GIB = 100
"""Size of a folder's disk where the definition says none, in GiB."""


class Controller(Model):
    """The VM that runs slurmctld, slurmdbd and MariaDB and serves the shared folders.

    Each folder has a disk of its own, of the state disk's type.
    """

    machine_type: Annotated[str, Field(description="Machine type.")]
    disk: Annotated[Disk, Field(description="Boot disk.")] = Disk()
    state_disk: Annotated[
        Disk,
        Field(
            description="Disk of queue and database; it outlives the VM. The disks of the shared "
            "folders (`storage`) are of its type."
        ),
    ] = Disk()


class Login(Model):
    """The VMs that people log in to."""

    machine_type: Annotated[str, Field(description="Machine type.")]
    count: Annotated[int, Field(ge=1, le=10, description="How many there are.")] = 1
    disk: Annotated[Disk, Field(description="Boot disk.")] = Disk()
    public_address: Annotated[
        bool,
        Field(description="Reachable from the internet; without it through IAP only."),
    ] = False


class Image(Model):
    """The image of all VMs of the cluster."""

    machine_type: Annotated[str, Field(description="Machine type of the VM that builds it.")]


class Cloud(Model):
    """The part of a cluster in Google Cloud that is always there."""

    zone: Annotated[str, Field(description="Zone of controller, login and disks.")]
    controller: Annotated[Controller, Field(description="The controller.")]
    login: Annotated[Login, Field(description="The login nodes.")]
    image: Annotated[Image, Field(description="The image.")]
    subnet: Annotated[
        str,
        Field(
            description="Addresses of all VMs, in a network that belongs to the cluster alone; "
            "the shared folders are served to them. Change it only with a new cluster."
        ),
    ] = "10.10.0.0/16"
    iap_users: Annotated[
        list[str],
        Field(
            description="Who may reach the login nodes through IAP, such as `user:ada@example.org` "
            "or `group:ml@example.org`."
        ),
    ] = []
    iap_admins: Annotated[
        list[str],
        Field(
            description="Who may reach the controller through IAP, and the login nodes too, "
            "written as in `iap_users`."
        ),
    ] = []

    @property
    def region(self) -> str:
        """Region of the zone: its name without the last letter."""
        return self.zone.rsplit("-", 1)[0]
