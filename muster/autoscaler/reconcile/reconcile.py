"""What is to be done, from what is known: all decisions of the autoscaler; pure.

The table of states, by what SLURM takes a node for:

* SLURM waits for it (`rising`, `asking`). No VM: one is made. A VM from before: deleted first. One
  that stopped, or a stage that takes too long: the node is given back.
* In service (`keeping`). Its VM has stopped or is gone for certain: given back, also where SLURM
  waits for its jobs to power it down. Drained: kept for a look, unless it is for a machine type of
  before. Down and silent: given back after a while. Down by somebody's hand: theirs.
* Powered down, or on the way (`clearing`): its VM is deleted, as are VMs without a node. VMs of
  others are never seen here.

A node comes back by SLURM's own means (`GiveBack`), and no VM of a node in service is deleted.
"""

from muster.autoscaler.reconcile.apply_results import learn
from muster.autoscaler.reconcile.garbage_collect import clear
from muster.autoscaler.reconcile.in_service import keep
from muster.autoscaler.reconcile.model import Action, Close
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.powering_up import judge
from muster.autoscaler.reconcile.provision import ask
from muster.autoscaler.reconcile.release import Returns
from muster.autoscaler.reconcile.tracked import Memory


def plan(world: World, memory: Memory) -> tuple[list[Action], Memory]:
    """Return what is to be done, in this order, and what is to be remembered."""
    after = memory.copy()
    learn(world, after)
    back = Returns(world, after)
    judged = judge(world, after, back)
    kept = keep(world, after, back)
    # After the verdicts: what is given back now is not asked for again, and its VM is deleted.
    asked = ask(world, after, back)
    cleared = clear(world, after)
    # A request is kept until each of its nodes is in service, or was given back.
    closed = [
        Close(request.id)
        for request in world.requests
        if not any(world.rises(name) for name in request.nodes)
    ]
    return [*back.actions(), *judged, *kept, *asked, *cleared, *closed], after
