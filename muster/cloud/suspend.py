"""SuspendProgram: `muster-suspend HOSTLIST` deletes the VMs of nodes and waits until they are gone.

Only VMs with this cluster's label are touched, whatever they are called. What isn't there is gone
already. A deletion that fails is asked for again until SuspendTimeout; after that SLURM takes the
node for powered down, and whoever resumes it next finds the VM that is left and deletes it first.

Exit status: 0 all are gone, 1 some aren't, 2 the program was called or configured wrongly.
"""

import logging
import sys
import time
from pathlib import Path
from typing import Any

from muster.cloud import nodes
from muster.cloud.api import CloudError, Compute
from muster.cloud.nodes import Fleet, SettingsError, Vm

log = logging.getLogger("muster")


def suspend(fleet: Fleet, names: list[str], timeout_s: float) -> bool:
    """Delete the VMs of nodes; whether all are gone within the time."""
    until = time.monotonic() + timeout_s
    wanted = set(names)
    asked: dict[str, dict[str, Any]] = {}
    for pause in nodes.pauses():
        try:
            left = [vm for vm in fleet.vms() if vm.name in wanted]
            if not left:
                log.info("%s: gone", nodes.fold(names))
                return True
            nodes.at_once(lambda vm: _delete(fleet, vm, asked), left)
        except CloudError as error:
            log.warning("the VMs can't be listed: %s", error)
            left = []
        if time.monotonic() >= until:
            # Where the VMs could not be listed it may be any.
            doubtful = [vm.name for vm in left] or names
            log.error("%s: not gone after %.0f s", nodes.fold(doubtful), timeout_s)
            break
        time.sleep(pause)
    return False


def _delete(fleet: Fleet, vm: Vm, asked: dict[str, dict[str, Any]]) -> None:
    """Ask for the deletion of a VM, again if the last one has failed."""
    try:
        if vm.path in asked and not fleet.ended(asked[vm.path]):
            return
        log.info("%s: delete %s in %s", vm.name, vm.status, vm.zone)
        operation = fleet.delete(vm)
        if operation:
            asked[vm.path] = operation
    except CloudError as error:
        asked.pop(vm.path, None)
        log.warning("%s: %s: %s %s", vm.name, vm.zone, error.reason, error)


def _fleet(cluster: str, until: float) -> Fleet | None:
    """The cluster's VMs; None if nobody says in time in which project they are.

    Who gives up at once leaves VMs running that SLURM takes for gone.
    """
    for pause in nodes.pauses():
        try:
            return Fleet(Compute(nodes.metadata("project/project-id")), cluster)
        except CloudError as error:
            log.log(logging.ERROR if time.monotonic() >= until else logging.WARNING, "%s", error)
        if time.monotonic() >= until:
            break
        time.sleep(pause)
    return None


def main(words: list[str], path: Path = nodes.SETTINGS) -> int:
    """Run the program; return its exit status."""
    if len(words) != 1:
        print("usage: muster-suspend HOSTLIST", file=sys.stderr)  # noqa: T201
        return 2
    try:
        settings = nodes.read_settings(path)
    except SettingsError as error:
        print(f"muster-suspend: {error}", file=sys.stderr)  # noqa: T201
        return 2
    nodes.prepare(settings)
    names = nodes.expand(words[0])
    log.info("suspend %s: %d nodes", words[0], len(names))
    fleet = _fleet(settings.cluster, time.monotonic() + settings.suspend_timeout_s)
    return 0 if fleet and suspend(fleet, names, settings.suspend_timeout_s) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
