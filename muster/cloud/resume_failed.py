"""ResumeFailProgram: `muster-resume-failed HOSTLIST` brings nodes back that have not registered.

After ResumeTimeout SLURM queues their jobs again and takes the nodes for down, for good: nothing
looks at them any more. Powered down they lose their VMs (SuspendProgram) and are idle again, with
the reason "ResumeTimeout reached".

Exit status: 0 SLURM was told, 1 it was not, 2 the program was called or configured wrongly.
"""

import logging
import sys
from pathlib import Path

from muster.cloud import nodes
from muster.cloud.nodes import SettingsError, Slurm

log = logging.getLogger("muster")


def main(words: list[str], path: Path = nodes.SETTINGS) -> int:
    """Run the program; return its exit status."""
    if len(words) != 1:
        print("usage: muster-resume-failed HOSTLIST", file=sys.stderr)  # noqa: T201
        return 2
    try:
        settings = nodes.read_settings(path)
    except SettingsError as error:
        print(f"muster-resume-failed: {error}", file=sys.stderr)  # noqa: T201
        return 2
    nodes.prepare(settings)
    log.error("%s: not registered within ResumeTimeout: powered down", words[0])
    return 0 if Slurm(settings.scontrol).power_down(nodes.expand(words[0])) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
