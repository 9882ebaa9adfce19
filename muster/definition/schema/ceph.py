"""CephFS: a cluster of Ceph that Muster builds, or one that is there already."""

from typing import Annotated, Literal

from pydantic import Field

from muster.definition.schema.base import Model


class Ceph(Model):
    """The Ceph cluster that holds folders of kind `ceph`."""

    devices: Annotated[
        dict[str, list[str]],
        Field(
            description="Disks of the hosts in the group `storage`, each used as a whole, one OSD "
            "per disk: under the name of a group for each host in it (`storage` for all), under "
            "the name of a host if it has others. Muster takes only these. A path outside /dev is "
            "a file that it makes, for trials.",
            examples=[{"storage": ["/dev/disk/by-path/..."]}],
        ),
    ] = {}
    file_gib: Annotated[
        int,
        Field(
            ge=1,
            json_schema_extra={"x-unit": "GiB"},
            description="Size of such a file; no effect on disks.",
        ),
    ] = 20
    copies: Annotated[
        int,
        Field(
            ge=1,
            le=3,
            description="Copies of all data. With 3, Ceph continues while one copy is unavailable; "
            "with 1, a broken disk destroys all folders.",
        ),
    ] = 3
    image: Annotated[
        str | None,
        Field(
            description="Container image of one release, such as quay.io/ceph/ceph:v20.2.5: "
            "cephadm builds the cluster from it. null: from the distribution's packages. An "
            "existing cluster can't change from one to the other."
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
            description="Addresses of the monitors of a Ceph cluster that exists already; then "
            "Muster builds none, and takes its key from `secrets.ceph_key`."
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
        """Return the disks of a storage host: those under its name, else those of its group."""
        names = [host, *(name for name in self.devices if host in groups.get(name, []))]
        return next((self.devices[name] for name in names if name in self.devices), [])
