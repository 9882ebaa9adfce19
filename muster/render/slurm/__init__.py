"""A cluster's definition -> SLURM's configuration files, and which changes of them need a restart.

Pure functions for SLURM 21.08 to 25.11; the roles write the files and restart the daemons.
muster.catalog.slurm_parameters has the parameters of each release.
"""

from muster.catalog.hostlists import expand, fold
from muster.render.slurm.files import SlurmFiles, render
from muster.render.slurm.restart import RestartDigests

__all__ = ["RestartDigests", "SlurmFiles", "expand", "fold", "render"]
