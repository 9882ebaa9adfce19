"""What happened, as lines of the event log; pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.autoscaler.model import (
    Action,
    Close,
    Delete,
    Deleted,
    Event,
    Failure,
    GiveBack,
    Insert,
    Inserted,
    Look,
    Request,
    Seen,
)
from muster.autoscaler.stages import Stage
from muster.autoscaler.status import Row
from muster.hostlists import fold

Line = dict[str, Any]


def of_request(request: Request) -> Line:
    """SLURM asks for nodes."""
    return {
        "event": "request",
        "request": request.id,
        "asked": round(request.asked, 3),
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
        "reason": view.reason,
        "request": row.request,
        "jobs": list(row.jobs) or None,
        "cold_start_s": {phase: round(each, 3) for phase, each in phases.items()} or None,
    }


def of_action(action: Action) -> Line:
    """Something is done."""
    match action:
        case Insert(id=of, choice=choice, names=names, job=job):
            return {
                "event": "insert",
                "insert": of,
                "nodes": fold(names),
                "zone": choice.zone,
                "machine_type": choice.machine_type,
                "spot": choice.spot or None,
                "job": job or None,
            }
        case Delete(vm=vm, why=why):
            return {"event": "delete", "node": vm.name, "zone": vm.zone, "reason": why}
        case GiveBack(names=names, reason=reason):
            return {"event": "give back", "nodes": fold(names), "reason": reason}
        case Look(name=name, zone=zone):
            return {"event": "look", "node": name, "zone": zone}
        case Close(request=request):
            return {"event": "settled", "request": request}


def of_event(event: Event, asked: Sequence[str]) -> Iterator[Line]:
    """Something done has ended; `asked`: the nodes of an insert."""
    match event:
        case Inserted(id=of):
            if event.whole is None:
                yield {"event": "inserted", "insert": of}
            for names, failure in _refused(event, asked):
                yield {"event": "refused", "insert": of, "nodes": fold(names), **_facts(failure)}
        case Deleted(name, zone, None):
            yield {"event": "deleted", "node": name, "zone": zone}
        case Deleted(name, zone, Failure() as failure):
            yield {"event": "not deleted", "node": name, "zone": zone, **_facts(failure)}
        case Seen(name, zone, failure=Failure() as failure):
            yield {"event": "not seen", "node": name, "zone": zone, **_facts(failure)}
        case Seen(name, zone, exists, report):
            yield {"event": "seen", "node": name, "zone": zone, "exists": exists, "report": report}


def failures(event: Event, asked: Sequence[str]) -> Iterator[tuple[str, Failure, Sequence[str]]]:
    """Yield what went wrong, such as `making`, why, and for which nodes."""
    match event:
        case Inserted():
            for names, failure in _refused(event, asked):
                yield "making", failure, names
        case Deleted(name=name, failure=Failure() as failure):
            yield "deleting", failure, (name,)
        case Seen(name=name, failure=Failure() as failure):
            yield "looking at", failure, (name,)


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
