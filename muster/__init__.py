"""Muster: an ML team's SLURM cluster from one definition."""

__version__ = "0.1.0"
