"""The autoscaler: jobs in SLURM's queue create the VMs.

SLURM's power save programs write its requests to a spool; a daemon reconciles the nodes that
slurmctld needs with the VMs that exist. One pure function decides what is to be done (`reconcile`);
`slurm` and `compute` read and act, `report` shows people what happened.
"""
