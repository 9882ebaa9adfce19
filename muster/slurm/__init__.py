"""A cluster's definition -> SLURM's configuration files, and what a change of them takes.

Pure functions that know SLURM 21.08 to 25.11; who writes the files and who restarts daemons is the
business of the roles. Which parameter exists in which release says muster.cluster.slurmparameters.
"""

from muster.hostlists import expand, fold
from muster.slurm.change import Change, change
from muster.slurm.files import SlurmFiles, render
from muster.slurm.restart import RestartDigests

__all__ = ["Change", "RestartDigests", "SlurmFiles", "change", "expand", "fold", "render"]
