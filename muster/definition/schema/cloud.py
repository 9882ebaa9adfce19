"""What a cluster in Google Cloud has besides its nodes."""

from typing import Annotated

from pydantic import Field

from muster.definition.schema.base import Model
from muster.definition.schema.node_sets import Disk


class StateDisk(Disk):
    """The disk that outlives the controller's VM: queue, database, shared folders."""

    size_gib: Annotated[
        int, Field(ge=10, le=65536, json_schema_extra={"x-unit": "GiB"}, description="Its size.")
    ] = 100


class Controller(Model):
    """The VM that runs slurmctld, slurmdbd and MariaDB and serves the shared folders."""

    machine_type: Annotated[str, Field(description="Machine type.")]
    disk: Annotated[Disk, Field(description="Boot disk.")] = Disk()
    state_disk: Annotated[
        StateDisk,
        Field(description="Disk of queue, database and shared folders; it outlives the VM."),
    ] = StateDisk()


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
