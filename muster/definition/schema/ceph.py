"""CephFS: a cluster of Ceph that Muster builds, or one that is there already."""

from typing import Annotated, Literal

from pydantic import Field

from muster.definition.schema.base import Model


class Ceph(Model):
    """The Ceph cluster that holds folders of kind `ceph`."""

    devices: Annotated[
        dict[str, list[str]],
        Field(
            description="Disks of the hosts in the group `storage`, all of each, one OSD per disk: "
            "by the name of a group for each host in it (`storage` for all), by the name of a host "
            "where it has others. Muster takes these and no others. A path outside /dev is a file "
            "that it makes, for trials.",
            examples=[{"storage": ["/dev/disk/by-path/..."]}],
        ),
    ] = {}
    file_gib: Annotated[
        int,
        Field(
            ge=1,
            json_schema_extra={"x-unit": "GiB"},
            description="Size of such a file; without meaning for disks.",
        ),
    ] = 20
    copies: Annotated[
        int,
        Field(
            ge=1,
            le=3,
            description="How many copies of everything there are. With 3 all goes on while one is "
            "away; with 1 a broken disk takes all folders with it.",
        ),
    ] = 3
    image: Annotated[
        str | None,
        Field(
            description="Container image of one release, such as quay.io/ceph/ceph:v20.2.5: the "
            "cluster is built of it by cephadm. null: from the distribution's packages. A cluster "
            "that is there does not change from the one to the other."
        ),
    ] = None
    client: Annotated[
        Literal["kernel", "fuse"],
        Field(
            description="What mounts the folders: the kernel, which is faster, or ceph-fuse, for "
            "kernels without CephFS."
        ),
    ] = "kernel"
    monitors: Annotated[
        list[str],
        Field(
            description="Addresses of the monitors of a Ceph cluster that is there already; Muster "
            "builds none then, and takes its key from `secrets.ceph_key`."
        ),
    ] = []
    fsid: Annotated[
        str | None,
        Field(description="Its number, as `ceph fsid` prints it."),
    ] = None
    filesystem: Annotated[str, Field(description="Its file system, as `ceph fs ls` prints it.")] = (
        "cephfs"
    )
    user: Annotated[
        str, Field(description="The client as which all hosts mount, without `client.`.")
    ] = "muster"

    @property
    def is_built(self) -> bool:
        """Whether Muster builds it on the hosts in group `storage`."""
        return not self.monitors

    def devices_of(self, host: str, groups: dict[str, list[str]]) -> list[str]:
        """Return the disks of a storage host: its own, else those of its group."""
        names = [host, *(name for name in self.devices if host in groups.get(name, []))]
        return next((self.devices[name] for name in names if name in self.devices), [])
