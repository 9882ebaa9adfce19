"""What slurmctld's reason of a node says: who has taken the node down, and why; pure."""

from muster.autoscaler.reconcile.model import SEPARATOR, Node

OURS = "muster:"
"""Muster's own reasons begin with this: nobody needs to look at such a node."""
GAVE_UP = "ResumeTimeout reached"
"""SLURM's reason for a node that it has given up; 24.11 appends it to an earlier reason."""
PREEMPTED = "muster: Google takes this spot VM back"
"""The reason that a spot VM sets when it leaves SLURM: roles/cloud_node, spot.py."""
NOT_RESPONDING = "Not responding"
"""slurmctld's reason for a node whose slurmd doesn't answer; 24.11 appends it to an earlier one."""


def is_given_up(node: Node) -> bool:
    """Whether Muster or SLURM has given up the node; somebody's words may contain GAVE_UP, too.

    The last reason decides: an old one of Muster's may stay on a node that is in service again.
    """
    return _last(node.reason).startswith((OURS, GAVE_UP))


def given_up_why(node: Node) -> str:
    """Return why Muster or SLURM has given up the node."""
    return _last(node.reason).removeprefix(OURS).strip()


def is_not_responding(node: Node) -> bool:
    """Whether SLURM has set it down for that: the slurmd of one that somebody set down may too."""
    somebody_s = node.by_hand and not is_given_up(node)
    slurm_s = _last(node.reason).startswith(NOT_RESPONDING)
    return node.down and (slurm_s or (node.not_responding and not somebody_s))


def is_preempted(node: Node) -> bool:
    """Whether Google takes its VM back: the node then also drains itself.

    The reason alone can come from an earlier VM.
    """
    return node.leaving and node.drained and PREEMPTED in node.reason


def _last(reason: str) -> str:
    """The last reason: 24.11 appends it to earlier ones."""
    return reason.rpartition(SEPARATOR)[2]
