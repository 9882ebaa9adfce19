"""Tables of the outside world: machine types, GPUs and their drivers, prices, SLURM's parameters.

Nothing here knows of a cluster's definition.
"""
