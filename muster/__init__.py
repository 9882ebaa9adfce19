"""Muster: an ML team's SLURM cluster from one definition."""
