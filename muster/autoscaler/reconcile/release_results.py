"""What becomes of a release: slurmctld takes it or not, and shows it later; pure."""

import math
from dataclasses import replace

from muster.autoscaler.reconcile.model import OFF
from muster.autoscaler.reconcile.observed import AGAIN_S, ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, Phase
from muster.autoscaler.reconcile.transitions import Evidence, advanced

SHOWN_S = 10.0
"""A node whose state in slurmctld has not changed so long after its release is released again."""


def not_released(observed: ObservedState, record: NodeRecord, name: str, at: float) -> NodeRecord:
    """Return a node's record where slurmctld has not released it, or does not show it for long."""
    if record.phase is not Phase.RELEASED:
        return record
    if record.start is not None and observed.is_powering_up(name):
        return advanced(record, name, Evidence.STILL_ASKED, at)
    return advanced(record, name, Evidence.RELEASE_NOT_SHOWN, at).with_service_of(record)


def after_reading(observed: ObservedState, record: NodeRecord, name: str) -> NodeRecord:
    """Return a node's record after a new reading of slurmctld, where it was released."""
    if record.phase is not Phase.RELEASED:
        return record
    node = observed.nodes.get(name)
    off = node is not None and node.power in OFF
    shown = node is None or (off and not node.down)
    newer = observed.nodes_at > record.since
    asked = observed.asked.get(name, -math.inf)
    again = record.released_at > 0 and asked > record.released_at + AGAIN_S
    if again or (newer and shown):
        return advanced(record, name, Evidence.RELEASE_SHOWN, observed.nodes_at)
    if newer and record.start and off:
        # It is down, and perhaps released again; when SLURM asks for it, that is a new start.
        record = replace(record.without_vm(), start=None)
    # By a new reading, not by the clock: slurmctld may be slow to apply an update.
    if record.released_at and observed.nodes_at > record.released_at + SHOWN_S:
        return not_released(observed, record, name, observed.nodes_at)
    return record
