"""What happened, as lines of the event log; pure.

Each line ends with the ids of the requests and jobs that its nodes are for. Each job is written
out: one search for its number finds all that happened to its nodes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    Withdraw,
)
from muster.autoscaler.report.lifecycle import Stage
from muster.autoscaler.report.status_file import Row
from muster.catalog.hostlists import fold

Line = dict[str, Any]
Owner = Callable[[str], tuple[str, tuple[int, ...]]]
"""Node -> its request, and the jobs that wait for it or run on it."""


def of_request(request: Request, asked: float) -> Line:
    """SLURM asks for nodes; `asked`: when, in seconds since the epoch."""
    return {
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


def of_stage(
    name: str, row: Row, was: Stage | None, for_s: float, phases: Mapping[str, float]
) -> Line:
    """A node has come to another stage; `for_s`: how long it was in the one before."""
    view = row.view
    return {
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


def of_action(action: Action, owner: Owner) -> Line:
    """The daemon begins an action."""
    line: Line
    match action:
        case Insert(id=insert_id, choice=choice, names=names):
            return {
                "event": "insert",
                "insert": insert_id,
                "nodes": fold(names),
                "zone": choice.zone,
                "machine_type": choice.machine_type,
                "spot": choice.spot or None,
                "gpus": choice.gpus or None,
                **_ids_of_all(names, owner),
            }
        case Delete(vm=vm, why=why):
            line = {"event": "delete", "node": vm.name, "zone": vm.zone, "vm": vm.id, "reason": why}
            return line | _ids(*owner(vm.name))
        case Withdraw(vm=vm):
            line = {"event": "withdraw", "node": vm.name, "zone": vm.zone, "vm": vm.id}
            return line | _ids(*owner(vm.name))
        case ReleaseNodes(names=names, reason=reason):
            line = {"event": "release", "nodes": fold(names), "reason": reason}
            return line | _ids_of_all(names, owner)
        case Probe(name=name, zone=zone):
            return {"event": "probe", "node": name, "zone": zone, **_ids(*owner(name))}
        case Close(request=request):
            return {"event": "settled", "request": request}


def of_event(event: Event, asked: Sequence[str], owner: Owner) -> Iterator[Line]:
    """An action has ended; `asked`: the nodes of an insert."""
    line: Line
    match event:
        case Inserted(id=insert_id):
            if event.whole is None:
                made = [name for name in asked if name not in event.failed]
                yield {"event": "inserted", "insert": insert_id, **_ids_of_all(made, owner)}
            for names, failure in _refused(event, asked):
                line = {"event": "refused", "insert": insert_id, "nodes": fold(names)}
                yield line | _facts(failure) | _ids_of_all(names, owner)
        case Deleted(vm, failure):
            line = {"event": "deleted", "node": vm.name, "zone": vm.zone, "vm": vm.id}
            if failure:
                line |= {"event": "not deleted", **_facts(failure)}
            yield line | _ids(*owner(vm.name))
        case ProbeResult(name, zone, exists, report, failure):
            line = {"event": "probed", "node": name, "zone": zone}
            if failure:
                line |= {"event": "not probed", **_facts(failure)}
            else:
                line |= {"exists": exists, "report": report}
            yield line | _ids(*owner(name))
        case Released() if event.not_released:
            why = event.failure or "it is not as it was when that was decided"
            line = {"event": "not released", "nodes": fold(event.not_released), "reason": why}
            yield line | _ids_of_all(event.not_released, owner)


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


def _facts(failure: Failure) -> Line:
    return {"code": failure.code, "message": failure.message, "status": failure.status or None}


def _ids(request: str, jobs: Sequence[int]) -> Line:
    return {"request": request, "jobs": list(jobs) or None}


def _ids_of_all(names: Sequence[str], owner: Owner) -> Line:
    owners = [owner(name) for name in names]
    return {
        "requests": sorted({request for request, _ in owners if request}) or None,
        "jobs": sorted({job for _, jobs in owners for job in jobs}) or None,
    }
