"""What the tests of a cluster in the cloud read from its slurm.conf."""

from muster.definition import Definition
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse


def keys(definition: Definition) -> dict[str, str]:
    """The parameters of the whole cluster."""
    return {
        key: value
        for line in parse(render(definition).slurm_conf)
        if not line.keys() & {"NodeName", "PartitionName"}
        for key, value in line.items()
    }
