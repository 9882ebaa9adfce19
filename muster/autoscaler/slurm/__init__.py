"""The client of slurmctld, and the programs that SLURM runs."""
