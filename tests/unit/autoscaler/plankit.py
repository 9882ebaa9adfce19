"""Reconcile passes as short text: what was read, what is to be done.

Nodes: `powering_up`, `up down: REASON`, `up drained`. VMs: `RUNNING in a since 5 spot`. Names are
written without the cluster's, zones by their last letter.
"""

import re
from dataclasses import replace
from typing import Any

from ClusterShell.NodeSet import NodeSet as HostList

from muster.autoscaler.reconcile.model import (
    Action,
    CapacityPool,
    Choice,
    Close,
    Delete,
    Deleted,
    Event,
    Failure,
    Insert,
    Inserted,
    Job,
    Node,
    NodeSet,
    Power,
    Probe,
    ProbeResult,
    Quotas,
    Released,
    ReleaseNodes,
    Request,
    Vm,
    VmList,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState, Timeouts
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.records import TrackedState

CLUSTER = "lab"
REGION = "europe-west4-"
POWER = {
    "up": Power.UP,
    "powering_up": Power.POWERING_UP,
    "powering_down": Power.POWERING_DOWN,
    "off": Power.OFF,
}
STATUS = {"rateLimitExceeded": 403, "backendError": 503, "forbidden": 403, "notFound": 404}


def choice(text: str) -> Choice:
    """`n1 in a`, `n1 spot in a`, `n1 t4:1 in a`."""
    kind, _, zone = text.partition(" in ")
    machine_type, *more = kind.split()
    template = f"T/{kind.replace(' ', '-')}"
    gpus = "".join(word for word in more if ":" in word)
    return Choice(template, REGION + zone, machine_type, "spot" in more, gpus)


SETS = {
    "debug": NodeSet("debug", (choice("n1 in a"), choice("n1 in b"))),
    "spot": NodeSet("spot", (choice("n1 spot in a"), choice("n1 in a"))),
    "close": NodeSet("close", (choice("c2 in a"), choice("c2 in b")), compact=True),
}


def expand(text: str) -> list[str]:
    return [f"{CLUSTER}-{name}" for name in HostList(text)]


def fold(names: Any) -> str:
    return str(HostList.fromlist([name.removeprefix(f"{CLUSTER}-") for name in names]))


def node(name: str, text: str) -> Node:
    states, _, reason = text.partition(": ")
    power, *flags = states.split()
    # SLURM waits for a node for the sake of a job, mostly: `powering_up unused` has none.
    busy = power == "powering_up" and "unused" not in flags
    return Node(
        name,
        POWER[power],
        reason=reason,
        **{"busy": busy, **{flag: True for flag in flags if flag != "unused"}},
    )


def vm(name: str, text: str) -> Vm:
    match = re.fullmatch(r"(\w+) in (\w) since (-?\d+)( spot)?", text)
    assert match, text
    status, zone, created, spot = match.groups()
    # Another time of its creation means another VM.
    return Vm(
        name,
        REGION + zone,
        f"{name} in {zone} since {created}",
        status,
        float(created),
        "n1",
        bool(spot),
    )


def request(name: str, given: dict[str, Any]) -> Request:
    # `debug-1 with debug-0`: the job has debug-0 besides, which is not to be made for it.
    jobs = []
    for job, text in given.get("jobs", {}).items():
        names, _, others = text.partition(" with ")
        jobs.append(Job(int(job), tuple(expand(names)), tuple(expand(others) if others else ())))
    return Request(name, given["at"], tuple(expand(given["nodes"])), tuple(jobs))


def quotas(room: dict[str, int], at: float) -> Quotas:
    """`n1 in a, n1 in b: 3` are three VMs in both together."""
    uses: dict[CapacityPool, dict[str, float]] = {}
    for texts in room:
        for text in texts.split(", "):
            uses.setdefault(pool(text), {})[texts] = 1
    return Quotas(room, uses, at)


class Rounds:
    """Reconcile passes, one after the other; what a round doesn't say is as it was before.

    Until a round slurmctld has answered, unless the round is the first one after it was `away`.
    """

    def __init__(self) -> None:
        self.observed = ObservedState(CLUSTER, 0, sets=SETS)
        # A daemon that has run for long.
        self.tracked = TrackedState(began=0)
        self.inserts: list[Insert] = []
        self.deletions: list[Vm] = []
        self.reports: set[tuple[str, str]] = set()
        """Name and zone of the VMs that are asked for their report."""
        self.actions: list[Action] = []
        """Of the last round."""
        self.heard: list[Event] = []
        """Events of the next round, besides those that it has as text. What is released is released
        at once."""

    def round(self, given: dict[str, Any]) -> list[str]:
        """Run a reconcile pass; return its actions as text."""
        now = float(given["at"])
        if given.get("unreleased"):
            # slurmctld has not taken the last releases yet.
            self.heard = [event for event in self.heard if not isinstance(event, Released)]
        observed = self._read(given, now)
        self.heard = []
        if given.get("restarted"):
            self.tracked = TrackedState()
        read = self.tracked.read
        if read and read.nodes_at and not given.get("away"):
            answered_at = max(read.nodes_at, observed.nodes_at - STALE_S)
            self.tracked = replace(self.tracked, read=replace(read, nodes_at=answered_at))
        actions, self.tracked = reconcile(observed, self.tracked)
        self.actions = actions
        self.inserts += [action for action in actions if isinstance(action, Insert)]
        self.deletions += [action.vm for action in actions if isinstance(action, Delete)]
        for action in actions:
            if isinstance(action, ReleaseNodes):
                self.heard.append(Released(action, action.names))
            elif isinstance(action, Probe) and action.report:
                self.reports.add((action.name, action.zone))
        self.observed = observed
        return [self._text(action) for action in actions]

    def _read(self, given: dict[str, Any], now: float) -> ObservedState:
        """Return what the daemon knows in this round."""
        events = [*self.heard, *map(self._event, given.get("events", []))]
        events = [replace(event, at=event.at or now) for event in events]
        observed = replace(self.observed, now=now, events=events)
        if "nodes" in given:
            read = {
                name: node(name, text)
                for names, text in given["nodes"].items()
                for name in expand(names)
            }
            observed = replace(observed, nodes={**observed.nodes, **read})
        for name in (name for names in given.get("removed", []) for name in expand(names)):
            observed = replace(
                observed, nodes={k: v for k, v in observed.nodes.items() if k != name}
            )
        if "vms" in given:
            listed = [
                vm(name, text)
                for names, texts in given["vms"].items()
                for name in expand(names)
                for text in ([texts] if isinstance(texts, str) else texts)
            ]
            observed = replace(observed, vms=VmList(listed, observed.vms.unreachable))
        if "unreachable" in given:
            zones = [REGION + zone for zone in given["unreachable"]]
            observed = replace(observed, vms=VmList(observed.vms, zones))
        if "requests" in given:
            requests = [request(name, facts) for name, facts in given["requests"].items()]
            observed = replace(observed, requests=requests)
        if "room" in given:
            observed = replace(
                observed, quotas=quotas(given["room"], float(given.get("room_at", now)))
            )
        if "sets" in given:
            sets = {
                name: NodeSet(name, tuple(choice(text) for text in texts))
                for name, texts in given["sets"].items()
            }
            observed = replace(observed, sets=sets)
        if "resume_timeout" in given:
            observed = replace(observed, timeouts=Timeouts(resume_s=given["resume_timeout"]))
        return replace(
            observed,
            sets_at=float(given.get("sets_at", now)),
            nodes_at=float(given.get("nodes_at", now)),
            vms_at=float(given.get("vms_at", now)),
        )

    def _event(self, text: str) -> Event:
        """Return an event; `made debug-0 at 103` was told at that time, and not only now."""
        words, _, why = text.partition(": ")
        words, _, at = words.partition(" at ")
        what, names, *rest = words.split()
        return replace(self._told(what, names, rest, why), at=float(at or 0))

    def _told(self, what: str, names: str, rest: list[str], why: str) -> Event:
        nodes = expand(names)
        if what in {"made", "refused"}:
            ask = next(ask for ask in reversed(self.inserts) if set(nodes) <= set(ask.names))
            code, _, message = why.partition(" ")
            failure = Failure(code, message, STATUS.get(code, 0))
            return Inserted(ask.id, dict.fromkeys(nodes, failure) if what == "refused" else {})
        if what == "only":
            ask = next(ask for ask in reversed(self.inserts) if set(nodes) <= set(ask.names))
            failed = dict.fromkeys(expand(rest[1]), Failure(why, ""))
            return Inserted(ask.id, {name: failed[name] for name in failed if name not in nodes})
        if what == "deleted":
            zone = REGION + (rest[1] if rest else "a")
            deleted = next(
                vm for vm in reversed(self.deletions) if (vm.name, vm.zone) == (nodes[0], zone)
            )
            return Deleted(deleted, Failure(why, "", STATUS.get(why, 0)) if why else None)
        result = ProbeResult(nodes[0], REGION + rest[1], exists=what in {"there", "found"})
        result = replace(result, of_report=(result.name, result.zone) in self.reports)
        match what:
            case "unknown":
                return replace(result, failure=Failure(why, "", 403))
            case "found":
                # `RUNNING since 5`, as of `vm`.
                status, _, since = why.partition(" since ")
                vm_id = f"{result.name} in {rest[1]} since {since}" if since else ""
                return replace(result, id=vm_id, status=status)
        assert what in {"there", "absent"}, what
        return replace(result, report=why)

    @staticmethod
    def _text(action: Action) -> str:
        match action:
            case Insert(choice=chosen, names=names, least=least, job=job, placement=placement):
                kind = f"{chosen.pool.kind}{' spot' if chosen.spot else ''} in {chosen.zone[-1]}"
                whole = f" all for job {job}" if job else ""
                assert least == (len(names) if job else 1)
                return f"insert {fold(names)}{whole}: {kind}{' placed' if placement else ''}"
            case Delete(vm=deleted, why=why):
                return f"delete {fold([deleted.name])} in {deleted.zone[-1]}: {why}"
            case Withdraw(vm=wanted):
                return f"withdraw {fold([wanted.name])} in {wanted.zone[-1]}"
            case ReleaseNodes(names=names, reason=reason):
                return f"release {fold(names)}: {reason.replace(REGION, '')}"
            case Probe(name=name, zone=zone):
                return f"probe {fold([name])} in {zone[-1]}"
            case Close(request=request_id):
                return f"close {request_id}"


def pool(text: str) -> CapacityPool:
    return choice(text).pool
