"""NVIDIA's driver on the nodes that have GPUs."""

from typing import Annotated

from pydantic import Field

from muster.cluster.base import Model
from muster.nvidia import Modules, Source, branches


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
            "first. With a type that Muster doesn't know it must be said."
        ),
    ] = None

    def branch_on(self, system: str) -> int | None:
        """Return the branch; None where the source serves the system not, which is refused."""
        return self.branch or next(iter(branches(system, self.source)), None)
