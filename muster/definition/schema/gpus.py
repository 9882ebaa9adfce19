"""The GPUs of a node, and NVIDIA's driver on the nodes that have some."""

from typing import Annotated, Any, Literal

from pydantic import Field

from muster.catalog.nvidia import Modules, Source, branches
from muster.definition.schema.base import Model


def _nvidia_devices(values: dict[str, Any]) -> str:
    """Device files that NVIDIA's driver makes: numbered from 0."""
    count: int = values["count"]
    return "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"


class Gpus(Model):
    """The GPUs of one node."""

    count: Annotated[int, Field(ge=1, le=64, description="GPUs in one node.")]
    type: Annotated[
        str | None,
        Field(
            description="Type by which jobs may ask (`--gres=gpu:TYPE:1`), such as `rtx4080`; "
            "null: GPUs have no type (`--gres=gpu:1`)."
        ),
    ] = None
    devices: Annotated[
        str,
        Field(
            default_factory=_nvidia_devices,
            description="Device files as a hostlist, one per GPU; without it `/dev/nvidia[0-N]` "
            "for `count` GPUs.",
        ),
    ]
    # No nvml: its plugin can't be installed on Debian 12, and none of Muster's roles does.
    autodetect: Annotated[
        Literal["nvidia"] | None,
        Field(
            description="nvidia: slurmd looks for the GPUs itself and drains a node that has fewer "
            "or others than `count` and `type` say; `type` must then be a part of the name that it "
            "finds, such as `h100` in `nvidia_h100_80gb_hbm3` (SLURM 24.11, not with MIG); null: "
            "by `devices`."
        ),
    ] = None
    shards: Annotated[
        int | None,
        Field(
            ge=2,
            description="Shards of one GPU, for jobs that ask for them (`--gres=shard:1`); jobs on "
            "one GPU are not isolated from each other. Null: a GPU has one job.",
        ),
    ] = None
    mig: Annotated[
        dict[str, Annotated[int, Field(ge=1)]],
        Field(
            description="Instances that each GPU is cut into (MIG), by profile, such as "
            "`{3g.40gb: 1, 1g.10gb: 4}`. Jobs ask for them by the GPU's type and the profile "
            "(`--gres=gpu:h100_1g.10gb:1`); empty: GPUs are whole.",
            examples=[{"3g.40gb": 1, "1g.10gb": 4}],
        ),
    ] = {}

    @property
    def offers(self) -> dict[str, int]:
        """What jobs can ask for on one node: types, and how many of each; "" is no type."""
        if not self.mig:
            return {self.type or "": self.count}
        prefix = f"{self.type}_" if self.type else ""
        return {f"{prefix}{profile}": self.count * n for profile, n in self.mig.items()}


class Nvidia(Model):
    """The driver; nodes without GPUs get none."""

    source: Annotated[
        Source,
        Field(
            description="distribution: the packages of Debian or Ubuntu. nvidia: NVIDIA's own "
            "repository (Debian alone), for GPUs that are newer than the distribution."
        ),
    ] = "distribution"
    branch: Annotated[
        int | None,
        Field(
            ge=1,
            description="First number of the driver's version, such as 550, kept until it is "
            "changed here; null: the one that docs/gpu-nodes.md recommends.",
        ),
    ] = None
    modules: Annotated[
        Modules | None,
        Field(
            description="Kernel modules; null: those that fit the GPU's type, NVIDIA's default "
            "first. Required with a type that Muster doesn't know."
        ),
    ] = None
    dcgm: Annotated[
        bool,
        Field(
            description="DCGM, with its exporter of metrics for Prometheus, from NVIDIA's "
            "repository, from which apt then takes nothing else. There are no packages for Debian "
            "13, and VMs get none."
        ),
    ] = False
    cdi: Annotated[
        bool,
        Field(
            description="NVIDIA's container toolkit, from its repository: a CDI specification, by "
            "which rootless podman and others give containers GPUs "
            "(`podman run --device nvidia.com/gpu=all`). VMs get none."
        ),
    ] = False

    def branch_on(self, system: str) -> int | None:
        """Return the branch; None where the source has none for the system, which is refused."""
        return self.branch or next(iter(branches(system, self.source)), None)
