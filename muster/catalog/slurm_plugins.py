"""The plugins of SLURM that a distribution has in packages of their own."""

_COMMON = {
    "acct_gather_energy/ipmi": "slurm-wlm-ipmi-plugins",
    "acct_gather_energy/xcc": "slurm-wlm-ipmi-plugins",
    "acct_gather_profile/hdf5": "slurm-wlm-hdf5-plugin",
    "acct_gather_profile/influxdb": "slurm-wlm-influxdb-plugin",
    "auth/jwt": "slurm-wlm-jwt-plugin",
    "jobcomp/elasticsearch": "slurm-wlm-elasticsearch-plugin",
    "jobcomp/mysql": "slurm-wlm-mysql-plugin",
}
PLUGIN_PACKAGES = {
    "debian-12": {**_COMMON, "ext_sensors/rrd": "slurm-wlm-rrd-plugin"},
    "debian-13": {**_COMMON, "jobcomp/kafka": "slurm-wlm-kafka-plugin"},
    # All are in slurm-wlm-basic-plugins, which SLURM's daemons depend on.
    "ubuntu-22.04": {},
    "ubuntu-24.04": {**_COMMON, "jobcomp/kafka": "slurm-wlm-kafka-plugin"},
}
"""System, plugin and the package, which slurmctld and slurmd don't depend on."""
OF_SLURMDBD = "slurm-wlm-mysql-plugin"
"""The one that slurmdbd depends on."""
