"""SLURM, as the autoscaler reaches it, and the programs that SLURM runs."""
