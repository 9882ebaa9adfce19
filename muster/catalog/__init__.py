"""Tables of the outside world: machine types, GPUs and their drivers, prices, SLURM's parameters.

Nothing here depends on a cluster's definition.
"""
