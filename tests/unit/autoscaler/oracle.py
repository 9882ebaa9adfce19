"""Judges a randomized fault-injection test by the records of slurmctld and of the cloud.

It knows nothing of the daemon. What is wrong: a node without a verdict in time (in service, or
released), two accepted inserts for one node and resume, a deleted VM of a node that works or that
SLURM waits for, a released node that works on a sound VM, a healthy node that came late, a VM that
is left over.
"""

from dataclasses import dataclass, field

Place = tuple[str, str, str]
"""A VM: name, zone and id. The next VM of that name in that zone has another id."""


@dataclass
class Oracle:
    """Times are seconds of one monotonic clock; `wrong` has its findings, in sentences."""

    resume_s: float
    """Within it each node that slurmctld asks for is in service or released."""
    healthy_s: float
    """Within it a node that nothing happened to is in service."""
    healthy: str = "-calm-"
    """Part of the names of nodes whose own VMs nothing happens to."""
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0
    """How long it took a healthy node at most."""
    _unreachable_s: float = 0
    _idle_s: float = 0
    _asked: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Node without a verdict -> when it was asked for, and the seconds excused by then."""
    _resumed: dict[str, float] = field(default_factory=dict)
    """Node -> when it was asked for last."""
    _works: dict[Place, float] = field(default_factory=dict)
    """VM that is made or runs -> when its insert was accepted."""
    _there: set[Place] = field(default_factory=set)
    """VMs that exist, also those that have stopped."""

    def excuse(self, seconds: float) -> None:
        """Excuse seconds in which nobody could update slurmctld, or no daemon ran."""
        self._unreachable_s += seconds

    def excuse_work(self, seconds: float) -> None:
        """Excuse seconds in which nobody could make a VM; a verdict is due all the same."""
        self._idle_s += seconds

    # --- slurmctld's records

    def asked(self, name: str, now: float) -> None:
        """ResumeProgram was called for a node."""
        self._asked[name] = now, self._unreachable_s, self._idle_s
        self._resumed[name] = now

    def in_service(self, name: str, now: float) -> None:
        """A node has registered."""
        idle_s = self._idle_s - self._asked[name][2] if name in self._asked else 0
        took = self._settled(name, now) - idle_s
        if self.healthy in name:
            self.slowest_s = max(self.slowest_s, took)
            if took > self.healthy_s:
                self.wrong.append(f"{name} is healthy and came after {took:.1f} s")

    def released(self, name: str, now: float, vm: Place | None = None) -> None:
        """A node was powered down by force; `vm`: it was in service on that VM."""
        if vm in self._works:
            self.wrong.append(f"{name} is in service on a sound VM in {vm[1]} and is released")
        self._settled(name, now)

    def waits(self, now: float) -> None:
        """Check the nodes that have no verdict yet."""
        for name in list(self._asked):
            if self._took(name, now) > self.resume_s:
                self._settled(name, now)

    def _took(self, name: str, now: float) -> float:
        asked, unreachable_s, _ = self._asked[name]
        return now - asked - (self._unreachable_s - unreachable_s)

    def _settled(self, name: str, now: float) -> float:
        if name not in self._asked:
            return 0
        took = self._took(name, now)
        del self._asked[name]
        if took > self.resume_s:
            self.wrong.append(f"{name} has no verdict after {took:.1f} s")
        return took

    # --- the cloud's records

    def born(self, vm: Place, now: float) -> None:
        """An insert of a VM was accepted."""
        name, zone, _ = vm
        for other, since in self._works.items():
            if other[0] == name and since >= self._resumed.get(name, 0):
                self.wrong.append(
                    f"{name} has two accepted inserts for one resume: in {other[1]} and {zone}"
                )
        self._works[vm] = now
        self._there.add(vm)

    def stopped(self, vm: Place) -> None:
        """A VM has stopped, or is about to."""
        self._works.pop(vm, None)

    def gone(self, vm: Place) -> None:
        """A VM's record is gone."""
        self.stopped(vm)
        self._there.discard(vm)

    def deleted(self, vm: Place, *, works: bool) -> None:
        """A deletion was accepted; `works`: a node in service is on that VM."""
        name, zone, _ = vm
        if works:
            self.wrong.append(f"{name} is in service and its VM in {zone} is deleted")
        elif name in self._asked and self._works.get(vm, 0) >= self._resumed[name]:
            self.wrong.append(f"SLURM waits for {name} and its new VM in {zone} is deleted")

    # --- the end

    def end(self, now: float) -> list[str]:
        """What is wrong, when nothing is left to do."""
        self.waits(now)
        self.wrong += [f"{name} has no verdict in the end" for name in sorted(self._asked)]
        self.wrong += [f"{name} in {zone} is left over" for name, zone, _ in sorted(self._there)]
        return self.wrong
