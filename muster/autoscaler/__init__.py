"""The autoscaler: the queue makes the machines.

SLURM's programs put what it asks for into a spool (`client`), a resident daemon reconciles what
slurmctld wants with the VMs that exist. What is to be done is decided by one pure function
(`plan`); reading and doing lie at its edges (`slurm`, `google`, `spool`).
"""
