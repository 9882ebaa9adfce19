"""job_submit.lua: slurmctld runs it for each job that is submitted or modified.

SLURM itself also refuses a job with an unknown type of GPU, but does not say which types exist,
and only where no node could ever run it. The plugin is a part of Debian's package
slurm-wlm-basic-plugins, which slurmctld depends on.
"""

from collections.abc import Iterable
from importlib.resources import files
from json import dumps

from muster.definition.definition import Definition
from muster.render.slurm.node_lines import gpu_sets, gpu_types


def job_submit_lua(definition: Definition) -> str:
    """Return the script; empty for a cluster without GPUs, which does not load the plugin."""
    if not gpu_sets(definition):
        return ""
    types = gpu_types(definition)
    # The names of types have nothing that JSON and Lua write differently.
    table = ", ".join(f"[{dumps(name)}] = true" for name in types)
    script = files("muster.render.slurm").joinpath("job_submit.lua").read_text()
    return f"local TYPES = {{{table}}}\nlocal INSTEAD = {dumps(_instead(types))}\n\n{script}"


def _instead(types: Iterable[str]) -> str:
    match list(types):
        case []:
            return "they have no types here, ask for --gpus=1 instead"
        case [only]:
            return f"ask for {only}, the only one"
        case several:
            return f"ask for one of these: {', '.join(several)}"
