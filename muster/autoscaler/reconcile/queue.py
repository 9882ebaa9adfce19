"""Whose turn it is: the nodes that are due, in the order in which room goes to them; pure.

By request, the oldest first, and there by job as SLURM names them in SLURM_RESUME_FILE. Nodes
without a job come at the end of their request; those whose request was lost come last.
"""

from collections.abc import Iterator
from itertools import chain, groupby

from muster.autoscaler.reconcile.allocate import Group
from muster.autoscaler.reconcile.model import NodeSet
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.powering_up import present
from muster.autoscaler.reconcile.release import Returns
from muster.autoscaler.reconcile.tracked import Memory


def turns(world: World, memory: Memory, back: Returns) -> Iterator[list[Group]]:
    """Yield what is placed together: a job's nodes, by set; or neighbours in line of one set."""
    if not world.sets or not world.vms_at:
        # The metadata has not been read yet; or an earlier self may have made the VMs elsewhere.
        return
    sets = _due(world, memory, back)
    together: dict[int | str, list[str]] = {}
    for name in _in_line(world, sets):
        job = world.jobs.get(name)
        together.setdefault(job.id if job else name, []).append(name)

    def alike(names: list[str]) -> object:
        """Neighbours that try the same choices may try them together, and it comes to the same."""
        job = world.jobs.get(names[0])
        tried = (choice for choice, _ in memory.refused.get(names[0], ()))
        return job.id if job else (sets[names[0]].name, frozenset(tried))

    for _, neighbours in groupby(together.values(), alike):
        parts: dict[str, list[str]] = {}
        for name in chain.from_iterable(neighbours):
            # Another part of the job may have been given back.
            if name not in memory.given:
                parts.setdefault(sets[name].name, []).append(name)
        if parts:
            yield [
                Group(sets[names[0]], tuple(names), world.jobs.get(names[0]))
                for _, names in sorted(parts.items())
            ]


def _due(world: World, memory: Memory, back: Returns) -> dict[str, NodeSet]:
    """Return the nodes that are to be asked for now; those of which there is no way go back."""
    found = {}
    for name in world.rising():
        if not _wanting(world, memory, name):
            continue
        if name not in world.nodes and world.asked.get(name, 0) <= world.nodes_at:
            continue
        node_set = world.set_of(name)
        if node_set is None or not node_set.choices:
            back.give(name, "the controller's metadata has no template for it; run `pulumi up`")
        else:
            found[name] = node_set
    return found


def _in_line(world: World, due: dict[str, NodeSet]) -> list[str]:
    """Return nodes in their order; of several jobs that need a node the first one counts."""
    if not due:
        return []
    line: dict[str, None] = {}
    for request in sorted(world.requests, key=lambda request: request.asked):
        for name in request.nodes:
            # SLURM asks for it anew.
            line.pop(name, None)
        line |= dict.fromkeys(chain(*(job.nodes for job in request.jobs), request.nodes))
    turn = {name: number for number, name in enumerate(line)}
    return sorted(due, key=lambda name: turn.get(name, len(turn)))


def _wanting(world: World, memory: Memory, name: str) -> bool:
    """Whether a node has no VM, none is on its way, and it may be asked for now."""
    if name in memory.given or name in memory.asking or name in memory.deleting:
        return False
    if present(world, memory, name) is not None:
        return False
    if name in memory.made and world.vms_at <= _lacking(world, memory, name):
        return False
    return name not in memory.pause or memory.pause[name][0] <= world.now


def _lacking(world: World, memory: Memory, name: str) -> float:
    """Return until when lists may lack a VM that was made.

    From the first list that lacks it: between that and the last one that had it there may have been
    none, and then one list would decide.
    """
    return memory.lacking.get(name, world.vms_at) + world.limits.missing_s
