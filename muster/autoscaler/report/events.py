"""What happened, as lines of the event log; pure.

Each line ends with the ids of the requests and jobs that its nodes are for. Each job is written
out: one search for its number finds all that happened to its nodes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.autoscaler.reconcile.model import (
    Action,
    Close,
    Delete,
    Deleted,
    Event,
    Failure,
    Insert,
    Inserted,
    Probe,
    ProbeResult,
    Released,
    ReleaseNodes,
    Request,
    Vm,
    Withdraw,
)
from muster.autoscaler.report.lifecycle import IN_SERVICE, POWERING_UP, Stage
from muster.autoscaler.report.status_file import Row
from muster.catalog.hostlists import fold

Facts = dict[str, Any]
Owner = Callable[[str], tuple[str, tuple[int, ...]]]
"""Node -> its request, and the jobs that wait for it or run on it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the event log."""

    facts: Facts
    nodes: Sequence[str] = ()
    """The nodes that it is about."""

    @property
    def kind(self) -> str:
        """Such as `delete`, `refused QUOTA_EXCEEDED` or `stage released after booting`."""
        facts = self.facts
        if facts["event"] == "stage":
            return f"stage {facts['stage']} after {facts['was']}"
        return " ".join(facts[key] for key in ("event", "code") if key in facts)

    @property
    def ends(self) -> bool:
        """Whether its node works, or is gone: what comes then is new."""
        stage, was = self.facts.get("stage"), self.facts.get("was")
        works = stage in IN_SERVICE and was in POWERING_UP | IN_SERVICE
        return works or self.facts["event"] == "removed"


def of_request(request: Request, asked: float) -> Line:
    """SLURM asks for nodes; `asked`: when, in seconds since the epoch."""
    facts = {
        "event": "request",
        "request": request.id,
        "asked": round(asked, 3),
        "nodes": fold(request.nodes),
        # Folding takes 50 us, and a burst has thousands of jobs with one node.
        "jobs": {
            job.id: fold(job.nodes) if len(job.nodes) > 1 else "".join(job.nodes)
            for job in request.jobs
        },
    }
    return Line(facts, request.nodes)


def of_stage(
    name: str, row: Row, was: Stage | None, for_s: float, phases: Mapping[str, float]
) -> Line:
    """A node has come to another stage; `for_s`: how long it was in the one before."""
    view = row.view
    facts = {
        "event": "stage",
        "node": name,
        "stage": view.stage,
        "was": was,
        "for_s": round(for_s, 3) if was else None,
        "since": round(row.since, 3),
        "state": view.state,
        "zone": view.zone,
        "machine_type": view.machine_type,
        "spot": view.spot or None,
        "gpus": view.gpus or None,
        "reason": view.reason,
        "cold_start_s": {phase: round(took_s, 3) for phase, took_s in phases.items()} or None,
        **_ids(row.request, row.jobs),
    }
    return Line(facts, (name,))


def of_removed(name: str) -> Line:
    """Neither a node nor a VM has this name any more."""
    return Line({"event": "removed", "node": name}, (name,))


def of_action(action: Action, requests: Mapping[str, Request], owner: Owner) -> Line:
    """The daemon begins an action; `requests`: those that are open, by id."""
    facts: Facts
    match action:
        case Insert(id=insert_id, choice=choice, names=names):
            facts = {
                "event": "insert",
                "insert": insert_id,
                "nodes": fold(names),
                "zone": choice.zone,
                "machine_type": choice.machine_type,
                "spot": choice.spot or None,
                "gpus": choice.gpus or None,
            }
            return _of_all(names, facts, owner)
        case Delete(vm=vm, why=why):
            return _of_one(vm.name, {"event": "delete", **_vm(vm), "reason": why}, owner)
        case Withdraw(vm=vm):
            return _of_one(vm.name, {"event": "withdraw", **_vm(vm)}, owner)
        case ReleaseNodes(names=names, reason=reason):
            facts = {"event": "release", "nodes": fold(names), "reason": reason}
            return _of_all(names, facts, owner)
        case Probe(name=name, zone=zone):
            return _of_one(name, {"event": "probe", "node": name, "zone": zone}, owner)
        case Close(request=request):
            return Line({"event": "closed", "request": request}, requests[request].nodes)


def of_event(event: Event, asked: Sequence[str], owner: Owner) -> Iterator[Line]:
    """An action has ended; `asked`: the nodes of an insert."""
    facts: Facts
    match event:
        case Inserted(id=insert_id):
            if event.whole is None:
                made = [name for name in asked if name not in event.failed]
                facts = {"event": "inserted", "insert": insert_id, **_ids_of_all(made, owner)}
                yield Line(facts, asked)
            for names, failure in _refused(event, asked):
                facts = {"event": "refused", "insert": insert_id, "nodes": fold(names)}
                yield _of_all(names, facts | _facts(failure), owner)
        case Deleted(vm, failure):
            facts = {"event": "deleted", **_vm(vm)}
            if failure:
                facts |= {"event": "not deleted", **_facts(failure)}
            yield _of_one(vm.name, facts, owner)
        case ProbeResult(name, zone, exists, report, failure):
            facts = {"event": "probed", "node": name, "zone": zone}
            if failure:
                facts |= {"event": "not probed", **_facts(failure)}
            else:
                facts |= {"exists": exists, "report": report}
            yield _of_one(name, facts, owner)
        case Released() if event.not_released:
            why = event.failure or "it is not as it was when that was decided"
            facts = {"event": "not released", "nodes": fold(event.not_released), "reason": why}
            yield _of_all(event.not_released, facts, owner)


def failures(event: Event, asked: Sequence[str]) -> Iterator[tuple[str, Failure, Sequence[str]]]:
    """Yield what failed, such as `making`, why, and for which nodes."""
    match event:
        case Inserted():
            for names, failure in _refused(event, asked):
                yield "making", failure, names
        case Deleted(vm=vm, failure=Failure() as failure):
            yield "deleting", failure, (vm.name,)
        case ProbeResult(name=name, failure=Failure() as failure):
            yield "probing", failure, (name,)


def _refused(event: Inserted, asked: Sequence[str]) -> Iterator[tuple[Sequence[str], Failure]]:
    """Yield each failure once, with the names that have it."""
    if event.whole:
        yield asked, event.whole
        return
    codes: dict[str, list[str]] = {}
    for name, failure in event.failed.items():
        codes.setdefault(failure.code, []).append(name)
    for names in codes.values():
        yield names, event.failed[names[0]]


def _of_one(name: str, facts: Facts, owner: Owner) -> Line:
    return Line(facts | _ids(*owner(name)), (name,))


def _of_all(names: Sequence[str], facts: Facts, owner: Owner) -> Line:
    return Line(facts | _ids_of_all(names, owner), names)


def _vm(vm: Vm) -> Facts:
    return {"node": vm.name, "zone": vm.zone, "vm": vm.id}


def _facts(failure: Failure) -> Facts:
    return {"code": failure.code, "message": failure.message, "status": failure.status or None}


def _ids(request: str, jobs: Sequence[int]) -> Facts:
    return {"request": request, "jobs": list(jobs) or None}


def _ids_of_all(names: Sequence[str], owner: Owner) -> Facts:
    owners = [owner(name) for name in names]
    return {
        "requests": sorted({request for request, _ in owners if request}) or None,
        "jobs": sorted({job for _, jobs in owners for job in jobs}) or None,
    }
