"""What becomes of a node: the table from (phase, evidence) to (phase, action); data only.

docs/autoscaler.md has it. The order is that of precedence: of several things that the readings show
of a node the first one in the table counts. `powering_up_rules` and `in_service_rules` have the
condition of each; `apply_results` has what results say, and `provision` finds room. VMs have no
phases: which of them are deleted depends on their nodes alone (`garbage_collect`). Where an action
is not possible now (slurmctld does not answer, too many probes are under way, no pool has room at
present) the node stays in its phase and is judged again.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum, unique
from typing import TypeVar

from muster.autoscaler.reconcile.records import POWERING_UP, VM_MADE, NodeRecord, Phase

K = TypeVar("K")


@unique
class Evidence(StrEnum):
    """What the newest readings and results say of a node, in the order of precedence."""

    # SLURM
    ASKED = "SLURM asks for it"
    ASKED_BEFORE = "SLURM asked for it before this daemon saw it: a VM may be made"
    NO_LONGER_ASKED = "SLURM does not wait for it any more: it registered, or was given up"
    NO_LONGER_UP = "it is powered down, leaves without jobs, or is unknown to SLURM"
    RELEASE_SHOWN = "slurmctld shows the release"
    RELEASE_NOT_SHOWN = "slurmctld does not show the release of a node in service 10 s later"
    STILL_ASKED = "SLURM still waits for it 10 s after its release"

    # results of an insert
    INSERTED = "its insert succeeded"
    REFUSED = "its insert failed"
    UNKNOWN = "its insert has no answer: the VM may be made"

    # SLURM waits for it
    FAILED = "an insert failed in a way that no further try helps"
    OVERDUE = "0.9 of ResumeTimeout is over"
    LEFT_OVER = "its VM is from before SLURM asked"
    LACKING = "lists lack its VM, for less than 20 s, or its zone"
    STOPPED = "its VM has stopped"
    NO_RUNNING_VM = "no VM of it runs half of ResumeTimeout after the request"
    INSERT_RUNS = "lists have no VM of it, and its insert runs"
    VM_IS_GONE = "its VM is deleted, or is not where it was made, or may have been, read by name"
    LACKING_LONG = "lists lack its VM for 20 s"
    NO_VM = "lists have no VM of it, and none is being made"
    BOOT_ENDED = "its VM has reported why the boot takes too long, or nothing for 20 s"
    BOOT_OVERDUE = "its VM has run for 0.4 of ResumeTimeout"
    RUNNING = "its VM runs"
    LEAVING = "its VM is stopping"
    COMING = "its VM does not run yet"
    ROOM = "a capacity pool has room for it"
    NO_TEMPLATE = "its set is not in the controller's metadata"
    NO_PLACE = "no choice of its set has room for it"
    JOB_RELEASED = "no job has it, and the one that it was asked for was queued again"

    # in service
    GIVEN_UP = "SLURM or Muster has taken it down, and nobody brings it up"
    OUTDATED = "SLURM drained it, as its VM has a machine type that its set had before"
    KEPT = "it is down or drained, for somebody to look at"
    ABSENT = "no zone has its VM, read by name"
    SHUT_DOWN = "its VM has stopped, read by name"
    NOT_RESPONDING = "slurmd has not answered for 10 minutes"
    TAKEN_BACK = "it said that Google takes its VM back, and a newer list lacks the VM"
    LISTED_STOPPED = "a list has its VM as stopped"
    LISTED_NOWHERE_LONG = "no list has its VM for 20 s"
    LISTED_NOWHERE = "no list has its VM"
    FOUND = "its VM has not stopped, read by name"
    WORKING = "its VM runs, or is stopping"
    OLD_LIST = "what the newest list says against it may be older than what is known"


class Act(StrEnum):
    """What is done."""

    NOTHING = ""
    INSERT = "create a VM"
    DELETE = "delete that VM"
    RELEASE = "release the node"
    READ_REPORT = "read the VM's report"
    LOOK_UP = "read the VM by its name"


_ANY_START = tuple(phase for phase in Phase if phase in POWERING_UP)
_UP = (Phase.SETTLED, Phase.VERIFYING)
_ANY = tuple(Phase)

Row = tuple[tuple[Phase, ...], Evidence, Phase | None, Act]
ROWS: tuple[Row, ...] = (
    # phases, evidence, next phase (None: the same), action
    (_ANY, Evidence.ASKED, Phase.WAITING, Act.NOTHING),
    (_ANY, Evidence.ASKED_BEFORE, Phase.CREATED, Act.NOTHING),
    (_ANY_START, Evidence.NO_LONGER_ASKED, Phase.SETTLED, Act.NOTHING),
    (_UP, Evidence.NO_LONGER_UP, Phase.SETTLED, Act.NOTHING),
    ((Phase.RELEASED,), Evidence.RELEASE_SHOWN, Phase.SETTLED, Act.NOTHING),
    ((Phase.RELEASED,), Evidence.RELEASE_NOT_SHOWN, Phase.SETTLED, Act.NOTHING),
    ((Phase.RELEASED,), Evidence.STILL_ASKED, Phase.CREATED, Act.NOTHING),
    ((Phase.WAITING, Phase.INSERTING), Evidence.INSERTED, Phase.CREATED, Act.NOTHING),
    ((*VM_MADE, Phase.RELEASED), Evidence.INSERTED, None, Act.NOTHING),
    ((Phase.INSERTING,), Evidence.REFUSED, Phase.WAITING, Act.NOTHING),
    ((Phase.WAITING, *VM_MADE, Phase.RELEASED), Evidence.REFUSED, None, Act.NOTHING),
    ((Phase.WAITING, Phase.INSERTING), Evidence.UNKNOWN, Phase.CREATED, Act.NOTHING),
    ((*VM_MADE, Phase.RELEASED), Evidence.UNKNOWN, None, Act.NOTHING),
    (_ANY_START, Evidence.FAILED, Phase.RELEASED, Act.RELEASE),
    (_ANY_START, Evidence.OVERDUE, Phase.RELEASED, Act.RELEASE),
    (_ANY_START, Evidence.LEFT_OVER, None, Act.DELETE),
    (VM_MADE, Evidence.LACKING, None, Act.NOTHING),
    (_ANY_START, Evidence.STOPPED, Phase.RELEASED, Act.RELEASE),
    (_ANY_START, Evidence.NO_RUNNING_VM, Phase.RELEASED, Act.RELEASE),
    (_ANY_START, Evidence.INSERT_RUNS, Phase.INSERTING, Act.NOTHING),
    (VM_MADE, Evidence.VM_IS_GONE, Phase.WAITING, Act.NOTHING),
    (VM_MADE, Evidence.LACKING_LONG, None, Act.LOOK_UP),
    (_ANY_START, Evidence.NO_VM, Phase.WAITING, Act.NOTHING),
    ((Phase.STUCK,), Evidence.BOOT_ENDED, Phase.RELEASED, Act.RELEASE),
    ((Phase.BOOTING, Phase.STUCK), Evidence.BOOT_OVERDUE, Phase.STUCK, Act.READ_REPORT),
    (_ANY_START, Evidence.RUNNING, Phase.BOOTING, Act.NOTHING),
    ((Phase.WAITING, *VM_MADE), Evidence.LEAVING, Phase.WAITING, Act.NOTHING),
    (_ANY_START, Evidence.COMING, Phase.CREATED, Act.NOTHING),
    ((Phase.WAITING,), Evidence.ROOM, Phase.INSERTING, Act.INSERT),
    ((Phase.WAITING,), Evidence.NO_TEMPLATE, Phase.RELEASED, Act.RELEASE),
    ((Phase.WAITING,), Evidence.NO_PLACE, Phase.RELEASED, Act.RELEASE),
    (_ANY_START, Evidence.JOB_RELEASED, Phase.RELEASED, Act.RELEASE),
    (_UP, Evidence.GIVEN_UP, Phase.RELEASED, Act.RELEASE),
    (_UP, Evidence.OUTDATED, Phase.RELEASED, Act.RELEASE),
    (_UP, Evidence.KEPT, Phase.SETTLED, Act.NOTHING),
    ((Phase.VERIFYING,), Evidence.ABSENT, Phase.RELEASED, Act.RELEASE),
    ((Phase.VERIFYING,), Evidence.SHUT_DOWN, Phase.RELEASED, Act.RELEASE),
    (_UP, Evidence.NOT_RESPONDING, Phase.RELEASED, Act.RELEASE),
    (_UP, Evidence.TAKEN_BACK, Phase.VERIFYING, Act.LOOK_UP),
    (_UP, Evidence.LISTED_STOPPED, Phase.VERIFYING, Act.LOOK_UP),
    (_UP, Evidence.LISTED_NOWHERE_LONG, Phase.VERIFYING, Act.LOOK_UP),
    (_UP, Evidence.LISTED_NOWHERE, Phase.VERIFYING, Act.NOTHING),
    ((Phase.VERIFYING,), Evidence.FOUND, Phase.SETTLED, Act.NOTHING),
    (_UP, Evidence.WORKING, Phase.SETTLED, Act.NOTHING),
    (_UP, Evidence.OLD_LIST, None, Act.NOTHING),
)

_STEPS = {
    (phase, evidence): (following or phase, act)
    for phases, evidence, following, act in ROWS
    for phase in phases
}


def step(phase: Phase, evidence: Evidence, name: str) -> tuple[Phase, Act]:
    """Return the next phase of a node, and what is done before it is in that.

    Raises:
        ValueError: the table has no such row.

    """
    try:
        return _STEPS[phase, evidence]
    except KeyError:
        raise ValueError(
            f"{name}: no transition from the phase `{phase}` when {evidence}"
        ) from None


def advanced(record: NodeRecord, name: str, evidence: Evidence, at: float) -> NodeRecord:
    """Return a node's record after evidence of a time that needs no action."""
    phase, _ = step(record.phase, evidence, name)
    return record.settled(at) if phase is Phase.SETTLED else record.to(phase, at)


def first_that_holds(rules: Iterable[tuple[Evidence, Callable[[K], bool]]], known: K) -> Evidence:
    """Return the evidence of the first condition that holds.

    Raises:
        ValueError: none does, though the last one always should.

    """
    for evidence, holds in rules:
        if holds(known):
            return evidence
    raise ValueError(f"no evidence: {known}")


def table() -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows as words: phases, evidence, next phase, action."""
    for phases, evidence, following, act in ROWS:
        yield _words(phases), evidence, following or "the same", act


def _words(phases: tuple[Phase, ...]) -> str:
    if phases == _ANY:
        return "any"
    return "SLURM waits for it" if phases == _ANY_START else ", ".join(phases)
