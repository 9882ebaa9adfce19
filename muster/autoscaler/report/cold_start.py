"""How long a node takes from SLURM's request until it is in service, phase by phase.

Times are when the daemon saw the change: it reads the cloud and slurmctld every few seconds.
"""

from muster.autoscaler.report.lifecycle import Stage

PHASES = ("created", "running", "registered")
"""Each lasts from the one before; the first from SLURM's request."""
_STEP = {
    Stage.WAITING: 0,
    Stage.INSERTING: 0,
    Stage.CREATED: 1,
    Stage.BOOTING: 2,
    Stage.STUCK: 2,
    Stage.IDLE: 3,
    Stage.BUSY: 3,
    Stage.LEAVING: 3,
}


class ColdStarts:
    """The nodes that are on their way."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}
        """Node -> when it was asked for, created and running, as far as it is."""

    def reached(self, name: str, stage: Stage, now: float, asked: float) -> dict[str, float] | None:
        """Take a node's new stage; return the seconds of each phase when it is in service.

        A node that was not seen from its beginning has none: a phase would be too long or short.
        """
        step = _STEP.get(stage)
        times = self._times.get(name)
        if times is None:
            if step == 0:
                self._times[name] = [asked]
            return None
        if step is None:
            del self._times[name]
            return None
        # A VM that vanished is made again.
        del times[step + 1 :]
        times += [now] * (step + 1 - len(times))
        if step < len(PHASES):
            return None
        del self._times[name]
        return {
            phase: max(0.0, end - begin)
            for phase, begin, end in zip(PHASES, times, times[1:], strict=False)
        }
