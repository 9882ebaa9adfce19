"""What is learnt from the ends of actions, and what is forgotten; pure but for the memory."""

from dataclasses import replace

from muster.autoscaler.reconcile import circuit_breaker
from muster.autoscaler.reconcile.model import Deleted, Failure, Insert, Inserted, Power, Seen
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.retry_policy import Remedy, remedy, sentence
from muster.autoscaler.reconcile.tracked import Memory, put, take

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before an insert that failed for a passing reason is tried again."""
GIVEN_S = 10.0
"""A node that slurmctld shows unmoved so long after it was given back is given back again."""
EARLIER_S = 5.0
"""SLURM asked so long before we heard of it: an earlier self may have made the VM, at a place that
we would not choose, and one list that lacks it does not say that there is none."""
DELETED_AGAIN_S = 10.0
"""After a deletion that failed."""


def learn(world: World, memory: Memory) -> None:
    """Put into the memory what happened since the last plan, and drop what is over."""
    for event in world.events:
        match event:
            case Inserted():
                _inserted(world, memory, event)
            case Deleted(name, zone, failure):
                if failure is None:
                    take(memory.deleting, name, zone)
                    _gone(world, memory, name, zone)
                else:
                    put(memory.deleting, name, zone, world.now + DELETED_AGAIN_S)
                    if name in memory.rising:
                        memory.undeleted[name] = failure
            case Seen():
                _seen(memory, event)
    _forget(world, memory)


def _gone(world: World, memory: Memory, name: str, zone: str) -> None:
    """There is no VM there now, whatever older lists have."""
    put(memory.gone, name, zone, world.now)
    market = memory.made.get(name, (0.0, None))[1]
    if market and market.zone == zone:
        del memory.made[name]


def _inserted(world: World, memory: Memory, event: Inserted) -> None:
    ask = memory.asks.pop(event.id, None)
    if ask is None:
        return
    market = ask.choice.market
    failures = dict.fromkeys(ask.names, event.whole) if event.whole else event.failed
    for name in ask.names:
        if memory.asking.get(name) == ask.id:
            del memory.asking[name]
        failure = failures.get(name)
        if failure is None:
            memory.made[name] = (world.now, market)
            memory.lacking.pop(name, None)
            take(memory.gone, name, ask.choice.zone)
        else:
            _refused(world, memory, ask, name, failure)
    short = next(
        (each for each in failures.values() if each and remedy(each) is Remedy.ELSEWHERE), None
    )
    before = memory.breakers.get(market)
    if short:
        memory.breakers[market] = circuit_breaker.after_shortage(
            before, ask.id, short.code, world.now, ask.least
        )
    elif before and before.trial == ask.id:
        made = len(failures) < len(ask.names)
        if made:
            del memory.breakers[market]
        else:
            # It was not tried after all; the next ask may.
            memory.breakers[market] = circuit_breaker.untried(before)


def _refused(world: World, memory: Memory, ask: Insert, name: str, failure: Failure) -> None:
    match remedy(failure):
        case Remedy.ELSEWHERE:
            memory.refused[name] = (*memory.refused.get(name, ()), (ask.choice, failure))
            # Google lists a VM while it looks for room, and takes it back.
            _gone(world, memory, name, ask.choice.zone)
        case Remedy.LATER:
            tries = memory.attempts.get(name, 1)
            pause_s = min(FIRST_PAUSE_S * 2 ** (tries - 1), LONGEST_PAUSE_S)
            memory.pause[name] = (world.now + pause_s, failure)
        case Remedy.NOTHING:
            memory.hopeless[name] = f"{sentence(failure)} ({ask.choice.market})"


def _seen(memory: Memory, event: Seen) -> None:
    if event.name in memory.inspecting:
        memory.said[event.name] = event.report
        return
    miss = memory.missing.get(event.name)
    if miss is None:
        return
    if event.exists:
        del memory.missing[event.name]
    elif event.failure:
        # No answer is none: all begins anew.
        del memory.missing[event.name]
    else:
        memory.missing[event.name] = replace(miss, without=miss.without | {event.zone})


def _forget(world: World, memory: Memory) -> None:
    """Drop what is over: what is known of a node's rise ends with it."""
    for name, given in list(memory.given.items()):
        node = world.nodes.get(name)
        moved = node is None or (not node.down and node.power is not Power.RISING)
        if (
            world.asked.get(name, 0) > given
            or (world.nodes_at > given and moved)
            # Not by the clock: slurmctld may be slow to take what it is told.
            or world.nodes_at > given + GIVEN_S
        ):
            del memory.given[name]
    rising = set(world.rising())
    for name in rising:
        if name not in memory.rising:
            # What an insert has said since the node was wanted last is of then.
            _drop(memory, name)
            memory.rising[name] = world.asked.get(name, world.now)
            if memory.rising[name] < world.now - EARLIER_S:
                memory.made[name] = (world.now, None)
        if world.asked.get(name, 0) > memory.rising[name]:
            # SLURM gave it up and asks anew.
            _drop(memory, name)
            memory.rising[name] = world.asked[name]
    for name in [name for name in memory.rising if name not in rising]:
        _drop(memory, name)
    for of, past in ((memory.deleting, world.now), (memory.gone, world.vms_at)):
        for name, zones in list(of.items()):
            for zone, when in zones.items():
                if when < past:
                    take(of, name, zone)


def _drop(memory: Memory, name: str) -> None:
    for of in (
        memory.rising,
        memory.attempts,
        memory.made,
        memory.lacking,
        memory.undeleted,
        memory.refused,
        memory.pause,
        memory.hopeless,
        memory.running,
        memory.said,
        memory.inspecting,
    ):
        of.pop(name, None)
