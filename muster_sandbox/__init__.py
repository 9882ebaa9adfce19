"""Stand-ins on one machine for a cluster's surroundings: containers for machines, Google Cloud.

Nothing of it is on a VM of a cluster, nor does `muster` import it.
"""
