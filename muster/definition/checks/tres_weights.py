"""Checks of weights of TRES that are passed on to slurm.conf."""

import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, suggestion
from muster.definition.checks.slurm import parameter_words
from muster.definition.definition import Definition
from muster.definition.gres import accounted_gres

# DEFAULT_ACCOUNTING_TRES in src/common/read_config.h of SLURM: always accounted.
_ALWAYS = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
# _tres_weight_item in src/common/slurm_protocol_api.c: strtod, then one letter of a unit.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?([kmgtp]|$)", re.I)


@check("priority-weight-tres")
def priority_weight_tres(d: Definition) -> Iterator[Finding]:
    """PriorityWeightTRES with what slurmctld can't read or does not account: it does not start."""
    name = next((name for name in d.cluster.slurm if name.lower() == "priorityweighttres"), None)
    value = d.cluster.slurm.get(name or "")
    if name is None or isinstance(value, bool | float) or re.search(r'[\s"#]', str(value)):
        return  # another check says what is wrong
    if "priority/basic" in parameter_words(d, "prioritytype"):
        return  # it reads no weights
    known = {*_ALWAYS, *accounted_gres(d), *parameter_words(d, "accountingstoragetres")}
    for weight in filter(None, str(value).split(",")):
        tres, _, number = weight.partition("=")
        if not _NUMBER.match(number):
            yield Finding(
                ("slurm", name),
                f'slurmctld does not start with "{weight}", which is no weight',
                "write each as TRES=NUMBER, such as cpu=1000",
            )
        elif tres.lower() not in {one.lower() for one in known}:
            # Of `gpu` or `h100` the whole name.
            meant = next((one for one in known if re.split("[/:]", one)[-1] == tres), tres)
            yield Finding(
                ("slurm", name),
                f'slurmctld does not start with "{tres}", which is not accounted',
                suggestion(meant, known, f"known: {', '.join(sorted(known))}"),
            )
