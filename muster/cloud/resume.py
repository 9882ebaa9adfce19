"""ResumeProgram: `muster-resume HOSTLIST` makes the VMs of nodes and waits until they run.

A VM has its node's name and is made from its node set's template, by one insert each: Google then
refuses what exists already by its name, and says of each VM that fails why, which of a bulkInsert
takes the right to list all operations of the project. One insert is one of 1,500 requests a
minute, enough for hundreds of nodes at once; many more are the resident daemon's business.

Whatever happens to this program, it can be run again: it looks first at what there is. Every node
has its verdict before ResumeTimeout: its VM runs, or the node is given back with a reason. It does
not wait for slurmd: SLURM does, and it takes a VM's address from its registration.

Exit status: 0 all run, 1 some don't, 2 the program was called or configured wrongly.
"""

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.cloud import nodes
from muster.cloud.api import CloudError, Compute
from muster.cloud.nodes import Fleet, NodeSet, Settings, SettingsError, Slurm, Vm

log = logging.getLogger("muster")

MARGIN = 0.1
"""Part of ResumeTimeout that is left when the last verdict falls."""

# https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability
SHORTAGE = "ZONE_RESOURCE_POOL_EXHAUSTED"
"""Beginning of the codes of a zone that has no room; another zone may have."""

# https://cloud.google.com/compute/api-quota: refilled each minute.
BUSY = {"rateLimitExceeded", "userRateLimitExceeded"}

FORBIDDEN, TOO_MANY, SERVER_ERROR = 403, 429, 500


@dataclass
class Node:
    """A node on its way."""

    name: str
    template: str
    zones: list[str]
    """Where it may still be made; the first one is the present one."""
    operation: dict[str, Any] | None = None
    made: bool = False
    """Whether its insert has ended well."""
    verdict: str | None = None
    """"" = its VM runs; else why it doesn't."""
    short: list[str] = field(default_factory=list)
    """Zones without room."""
    trouble: str = ""
    """What hinders it at present, and may pass."""


def resume(
    fleet: Fleet,
    slurm: Slurm,
    sets: dict[str, NodeSet],
    names: list[str],
    settings: Settings,
) -> bool:
    """Bring the VMs of nodes to run; whether all do."""
    until = time.monotonic() + settings.resume_timeout_s * (1 - MARGIN)
    found = [_node(name, settings.cluster, sets) for name in names]
    told: set[str] = set()
    for pause in nodes.pauses():
        try:
            _look(fleet, found, settings.resume_timeout_s)
        except CloudError as error:
            log.warning("the VMs can't be listed: %s", error)
            for node in _waiting(found):
                node.trouble = str(error)
        if time.monotonic() >= until:
            for node in _waiting(found):
                node.verdict = node.trouble or "its VM did not run in time"
        _tell(slurm, found, told)
        if not list(_waiting(found)):
            break
        time.sleep(pause)
    return all(node.verdict == "" for node in found)


def _node(name: str, cluster: str, sets: dict[str, NodeSet]) -> Node:
    """A node as it is before anything was done; `name` is CLUSTER-SET-NUMBER."""
    of = name.removeprefix(f"{cluster}-").rpartition("-")[0]
    if of not in sets:
        return Node(name, "", [], verdict=f"the metadata's {nodes.ATTRIBUTE} has no node set {of}")
    return Node(name, sets[of].template, list(sets[of].zones))


def _waiting(found: Iterable[Node]) -> Iterator[Node]:
    return (node for node in found if node.verdict is None)


def _look(fleet: Fleet, found: list[Node], timeout_s: float) -> None:
    """Do for each node that has no verdict what its VM's state asks for."""
    vms = {vm.name: vm for vm in fleet.vms()}
    nodes.at_once(lambda node: _step(fleet, node, vms.get(node.name), timeout_s), _waiting(found))


def _step(fleet: Fleet, node: Node, vm: Vm | None, timeout_s: float) -> None:
    try:
        if vm is None:
            _without_vm(fleet, node)
        elif vm.status == "RUNNING" and vm.age_s() <= timeout_s:
            log.info("%s: runs in %s", node.name, vm.zone)
            node.verdict = ""
        elif vm.status in ("RUNNING", "TERMINATED", "SUSPENDED", "STOPPED"):
            # Left over: SLURM takes no registration of a machine that booted before it asked.
            log.info("%s: a VM of before, %s, is deleted", node.name, vm.status)
            fleet.delete(vm)
            node.operation, node.made = None, False
        # Else it is on its way, up or down.
    except CloudError as error:
        _failed(node, error)


def _without_vm(fleet: Fleet, node: Node) -> None:
    if node.made:
        raise CloudError(f"its VM in {node.zones[0]} vanished as soon as it was made")
    if node.operation is None:
        log.info("%s: asked for in %s", node.name, node.zones[0])
        node.operation = fleet.create(node.name, node.template, node.zones[0])
    else:
        # Listed before it was made, maybe: the next look tells.
        node.made = fleet.ended(node.operation)


def _failed(node: Node, error: CloudError) -> None:
    """Decide what an error means: another zone, another try, or the end."""
    zone = node.zones[0]
    log.warning("%s: %s: %s %s", node.name, zone, error.reason, error)
    if error.reason.startswith(SHORTAGE):
        node.short.append(zone)
        node.zones.pop(0)
        node.operation = None
        if not node.zones:
            node.verdict = f"{error.reason} in {', '.join(node.short)}"
    elif _may_pass(error):
        node.trouble = f"{zone}: {error}"
    else:
        node.verdict = f"{error.reason} in {zone}: {error}" if error.reason else str(error)


def _may_pass(error: CloudError) -> bool:
    """Whether a call is worth another try: no answer, a broken or a busy server."""
    if error.reason == "unreachable" or error.status == TOO_MANY:
        return True
    if error.status == FORBIDDEN:
        return error.reason in BUSY
    return error.status >= SERVER_ERROR and error.reason == error.reason.lower()


def _tell(slurm: Slurm, found: list[Node], told: set[str]) -> None:
    """Give the nodes back that have failed since the last time."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for node in found:
        if node.verdict and node.name not in told:
            by_reason[node.verdict].append(node.name)
            told.add(node.name)
    for reason, names in by_reason.items():
        log.error("%s: given back: %s", nodes.fold(names), reason)
        slurm.give_back(names, reason)


def main(words: list[str], path: Path = nodes.SETTINGS) -> int:
    """Run the program; return its exit status."""
    if len(words) != 1:
        print("usage: muster-resume HOSTLIST", file=sys.stderr)  # noqa: T201
        return 2
    try:
        settings = nodes.read_settings(path)
    except SettingsError as error:
        print(f"muster-resume: {error}", file=sys.stderr)  # noqa: T201
        return 2
    nodes.prepare(settings)
    slurm = Slurm(settings.scontrol)
    names = nodes.expand(words[0])
    log.info("resume %s: %d nodes", words[0], len(names))
    try:
        sets = nodes.node_sets()
        fleet = Fleet(Compute(nodes.metadata("project/project-id")), settings.cluster)
    except CloudError as error:
        log.error("resume %s: %s", words[0], error)
        slurm.give_back(names, str(error))
        return 1
    return 0 if resume(fleet, slurm, sets, names, settings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
