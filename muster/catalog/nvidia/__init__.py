"""NVIDIA's GPUs and their drivers: which driver a GPU needs, and which packages are that driver.

Pure tables and functions, because the definition is checked without access to a host.
"""

from muster.catalog.nvidia.additions import Addition, cdi, dcgm
from muster.catalog.nvidia.drivers import Driver, Source, branches, choose, fitting, modules_of
from muster.catalog.nvidia.mig import Geometry, geometries
from muster.catalog.nvidia.models import Gpu, Modules, gpus, named

__all__ = [
    "Addition",
    "Driver",
    "Geometry",
    "Gpu",
    "Modules",
    "Source",
    "branches",
    "cdi",
    "choose",
    "dcgm",
    "fitting",
    "geometries",
    "gpus",
    "modules_of",
    "named",
]
