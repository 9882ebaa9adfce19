"""Stand-ins on one machine for what a cluster runs on: containers for machines, and Google Cloud.

It is never installed on a cluster's VMs, and `muster` doesn't import it.
"""
