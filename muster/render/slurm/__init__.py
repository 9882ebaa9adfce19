"""A cluster's definition -> SLURM's configuration files, and which changes of them need a restart.

Pure functions that know SLURM 21.08 to 25.11; who writes the files and who restarts daemons is the
business of the roles. Which parameter exists in which release says muster.catalog.slurm_parameters.
"""

from muster.catalog.hostlists import expand, fold
from muster.render.slurm.files import SlurmFiles, render
from muster.render.slurm.restart import RestartDigests

__all__ = ["RestartDigests", "SlurmFiles", "expand", "fold", "render"]
