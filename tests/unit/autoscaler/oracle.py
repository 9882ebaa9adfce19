"""Judges a randomized fault-injection test by the records of slurmctld and of the cloud.

It knows nothing of the daemon. What is wrong: a node without a verdict in time (in service, or
released), a request that is closed before its nodes have one, two accepted inserts for one node and
resume, a deleted VM of a node that works or that SLURM waits for, or another VM than the one that
was meant, a released node that works on a sound VM or that somebody has drained or set down, a
running job that is lost although its VMs are sound, a healthy node that came late or not at all, a
VM that is left over.

What nobody could do better is excused, each time for a reason that this file names.
"""

import math
from collections.abc import Collection, Iterable, Mapping
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
    boot_s: float = 0
    """So long a healthy node may boot: from the time on at which its VM runs..."""
    made_s: float = 0
    """... if that is so soon after SLURM asked for it. So long it may also have no VM."""
    runs_s: float = math.inf
    """A VM that nobody has seen coming for so long before SLURM asks may be taken for one that ran
    then."""
    missing_s: float = -math.inf
    """So long lists may lack a VM that is there."""
    unread_s: float = 0
    """So long a daemon that begins must wait for slurmctld's first answer to know that it was
    away."""
    told_s: float = 0
    """A VM ran before SLURM asked for its node only if a list has said so for so long."""
    healthy: str = "-calm-"
    """Part of the names of nodes whose own VMs nothing happens to."""
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0
    """How long it took a healthy node at most."""
    _unreachable_s: float = 0
    _idle_s: float = 0
    _began: float = -math.inf
    """When the daemon began."""
    _back_at: float = -math.inf
    """When slurmctld answered again after it was away."""
    _asked: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Node without a verdict -> when it was asked for, and the seconds excused by then."""
    _resumed: dict[str, float] = field(default_factory=dict)
    """Node -> when it was asked for last."""
    _works: dict[Place, float] = field(default_factory=dict)
    """VM that is made or runs -> when its insert was accepted."""
    _ran: dict[Place, float] = field(default_factory=dict)
    """VM -> when it ran first."""
    _there: set[Place] = field(default_factory=set)
    """VMs that exist, also those that have stopped."""
    _coming: dict[Place, float] = field(default_factory=dict)
    """VM that does not run yet by the daemon's lists -> when it asked for the last of those."""
    _known: dict[Place, float] = field(default_factory=dict)
    """VM that the daemon's lists have had -> when it asked for the last of those."""
    _told: dict[Place, float] = field(default_factory=dict)
    """VM -> when the daemon had the first list that has it running."""
    _mistaken: set[Place] = field(default_factory=set)
    """VMs that slurmctld has accepted although they booted before it asked for their nodes."""
    _foreign: set[Place] = field(default_factory=set)
    """VMs without the cluster's label."""

    def excuse(self, seconds: float) -> None:
        """Excuse seconds in which nobody could update slurmctld, or no daemon ran."""
        self._unreachable_s += seconds

    def excuse_work(self, seconds: float) -> None:
        """Excuse seconds in which nobody could make a VM; a verdict is due all the same."""
        self._idle_s += seconds

    # --- slurmctld's records

    def asked(self, name: str, now: float, *, wrong_clock: bool = False) -> None:
        """ResumeProgram was called for a node.

        `wrong_clock` is an excuse: a step of the clock has ended SuspendTimeout early, so nobody
        can tell this request from the one before. So is a VM that runs already, which slurmctld
        will refuse, as long as no list has said so early enough, and it is not older than
        `runs_s`: it may seem to have begun since. A verdict is due all the same.
        """
        untold = any(
            self._told.get(vm, now) + self.told_s > now and made + self.runs_s > now
            for vm, made in self._works.items()
            if vm[0] == name and vm in self._ran
        )
        idle_s = math.inf if wrong_clock or untold else self._idle_s
        self._asked[name] = now, self._unreachable_s, idle_s
        self._resumed[name] = now

    def called_late(self, names: Iterable[str], seconds: float) -> None:
        """ResumeProgram runs so much later than slurmctld asked.

        That is an excuse for a healthy node that is late. A verdict is due all the same.
        """
        for name in names:
            asked, unreachable_s, idle_s = self._asked[name]
            self._asked[name] = asked, unreachable_s, idle_s - seconds

    def back(self, now: float) -> None:
        """Slurmctld answers again: no slurmd could register while it was away.

        A daemon that began not long ago can't know that, which is an excuse.
        """
        self._back_at = now if now > self._began + self.unread_s else -math.inf

    def tries_later(self, name: str, seconds: float) -> None:
        """A slurmd tries to register so long after slurmctld is back.

        That is an excuse for a healthy node that is late. A verdict is due all the same.
        """
        if name in self._asked:
            self.called_late([name], seconds)

    def refused(self, name: str) -> None:
        """Slurmctld refuses the registration of a VM that is newer than its request.

        That is an excuse: its clock was set back since. A verdict is due all the same.
        """
        self._is_late(name)

    def mistaken(self, vm: Place) -> None:
        """Slurmctld accepts a VM that booted before it asked for the node.

        Its clock was set since. That is an excuse: such a VM may be deleted.
        """
        self._mistaken.add(vm)

    def in_service(self, name: str, now: float) -> None:
        """A node has registered."""
        took = self._worked(name, now)
        if self.healthy in name:
            self.slowest_s = max(self.slowest_s, took)
            if took > self.healthy_s:
                self.wrong.append(f"{name} is healthy and came after {took:.1f} s")

    def released(
        self, name: str, now: float, vm: Place | None = None, *, unseen: bool = False
    ) -> None:
        """A node was powered down by force; `vm`: it was in service on that VM.

        `unseen` is an excuse: slurmctld never said that it is in service, because it registered
        after the last question for its state, and an update of SLURM has no condition.
        """
        if vm in self._works and not unseen:
            self.wrong.append(f"{name} is in service on a sound VM in {vm[1]} and is released")
        took = self._worked(name, now)
        if self.healthy in name and took > self.healthy_s:
            self.wrong.append(f"{name} is healthy and is released after {took:.1f} s")

    def unused(self, name: str, job: int) -> None:
        """A node is released for no job has it; one has it, and the daemon could see that."""
        self.wrong.append(f"{name} is released as no job has it, and job {job} has it")

    def held(self, name: str, vm: Place | None, *, busy: bool, unseen: bool) -> None:
        """A node is released that somebody has drained or set down; `unseen` as in `released`.

        That is right only for the sake of its jobs, if its VM is gone.
        """
        if not unseen and (vm in self._works or not busy):
            self.wrong.append(f"{name} is held by somebody and is released")

    def released_together(self, names: Collection[str], now: float) -> None:
        """Nodes are released, and with them their jobs: healthy ones must have had their time.

        `names`: all nodes that those jobs still wait for; one of them may be the reason.
        """
        facts = [self._asked.get(name, (-math.inf, 0, math.inf)) for name in names]
        known = all(idle_s < math.inf for _, _, idle_s in facts)
        healthy = known and all(self.healthy in name for name in names)
        asked = min((asked for asked, _, _ in facts), default=-math.inf)
        if healthy and now < asked + self.boot_s:
            self.wrong.append(
                f"{', '.join(names)}: healthy, and released {now - asked:.1f} s after SLURM asked"
            )
        started = [self._started(name) for name in names]
        if (
            started
            and all(started)
            and all(
                ran < asked + self.made_s and now < self._booted_by(asked, ran)
                for asked, ran in filter(None, started)
            )
        ):
            self.wrong.append(f"{', '.join(names)}: healthy, boots, and is released too early")

    def _booted_by(self, asked: float, ran: float) -> float:
        """Until when a node has its time to register."""
        booted_by = min(ran + self.boot_s, asked + 2 * self.made_s)
        return max(booted_by, self._back_at + self.boot_s)

    def _started(self, name: str) -> tuple[float, float] | None:
        """When SLURM asked for a healthy node that it waits for, and when its sound VM ran.

        Of one that ran before, slurmctld refuses the registration.
        """
        asked, _, idle_s = self._asked.get(name, (0, 0, math.inf))
        ran = [self._ran[vm] for vm in self._works if vm[0] == name and vm in self._ran]
        ran = [since for since in ran if since >= self._resumed.get(name, asked)]
        if self.healthy not in name or idle_s == math.inf or not ran:
            return None
        return asked, max(ran)

    def restarted(self, now: float, lost: Collection[str], called: Mapping[str, float]) -> None:
        """A daemon starts, which must guess when SLURM asked for some of the nodes it waits for.

        `lost`: their requests never came into the spool. That is an excuse, as the daemon before
        knew: the time counts from now, and ResumeTimeout may be over before. So are requests that
        are too old by now (`guesses`). `called`: when ResumeProgram ran for nodes; the daemon
        before had perhaps noticed earlier that SLURM waits for them, and the time counts from this
        call now.
        """
        for name, (asked, unreachable_s, idle_s) in self._asked.items():
            if name in lost:
                self._asked[name] = now, self._unreachable_s, math.inf
            elif called.get(name, asked) > asked:
                self._asked[name] = called[name], unreachable_s, idle_s
        self.guesses(now)
        self._began, self._back_at = now, -math.inf
        self._coming.clear()
        self._known.clear()
        self._told.clear()

    def guesses(self, now: float) -> None:
        """A daemon starts, or has the first answer of slurmctld since.

        Requests that are older than ResumeTimeout by now may belong to an earlier start: SLURM
        would have given the node up, by a right clock. That is an excuse, as the daemon before
        knew: the time counts from now.
        """
        for name in self._asked:
            if now - self._resumed[name] > self.resume_s:
                self._asked[name] = now, self._unreachable_s, math.inf

    def unread(
        self, now: float, verdict_s: float, register_s: float, guessed: Mapping[str, float]
    ) -> None:
        """Slurmctld is read again, after longer than its states may be old.

        A start that is older than `verdict_s` may have ended meanwhile, and its node power up for
        another one, whose request is lost: nobody can tell them apart, as slurmctld ends the first
        one by a clock that may have been set back. That is an excuse: the time counts from now.
        The others have `register_s` from now on, as no slurmd could register meanwhile; then their
        verdict is as late as it is after `verdict_s`.
        `guessed`: nodes whose requests never came into the spool, and how many seconds earlier than
        SLURM asked they may seem to have been asked for.
        """
        for name, (asked, unreachable_s, idle_s) in self._asked.items():
            if now - asked >= verdict_s - guessed.get(name, 0):
                self._asked[name] = now, self._unreachable_s, math.inf
                continue
            excused_s = self._unreachable_s - unreachable_s
            later_s = max(0, now + register_s - (asked + verdict_s + excused_s))
            self._asked[name] = asked, unreachable_s - later_s, idle_s

    def unnoticed(self, name: str) -> None:
        """Slurmctld asks for a node whose request is lost, and no state shows since when.

        It asks again within seconds, as it was killed and does not know that it had asked; or the
        daemon begins after it has asked. That is an excuse: the VM may be that of an earlier start.
        A verdict is due all the same; where that request is called late the node may have it
        already.
        """
        self._is_late(name)

    def counted(self, names: Iterable[str]) -> None:
        """Nodes are released as quotas have no room, which counted a VM of another node.

        Its insert has failed since. That is an excuse: newer quotas may count that of the next one,
        again and again. A verdict is due all the same.
        """
        for name in names:
            self._is_late(name)

    def _is_late(self, name: str) -> None:
        """Excuse a node that comes late, or not at all."""
        if name in self._asked:
            asked, unreachable_s, _ = self._asked[name]
            self._asked[name] = asked, unreachable_s, math.inf

    def given_up(self, name: str, now: float) -> None:
        """Slurmctld itself gave up a node: by the system clock ResumeTimeout is over."""
        self._settled(name, now)

    def lost(self, job: int, vms: Iterable[Place | None], *, unseen: bool = False) -> None:
        """A job that runs on the nodes of these VMs is queued again; `unseen` as in `released`."""
        if all(vm in self._works for vm in vms) and not unseen:
            self.wrong.append(f"job {job} runs on sound VMs and is lost")

    def closed(self, names: Iterable[str], asked: float) -> None:
        """The daemon closes a request; slurmctld asked for its nodes at that time."""
        for name in names:
            if name in self._asked and self._resumed[name] <= asked:
                self.wrong.append(f"SLURM waits for {name} and its request is closed")

    def waits(self, now: float) -> None:
        """Check the nodes that have no verdict yet."""
        for name in list(self._asked):
            if self._took(name, now) > self.resume_s:
                self._settled(name, now)

    def _took(self, name: str, now: float) -> float:
        asked, unreachable_s, _ = self._asked[name]
        return now - asked - (self._unreachable_s - unreachable_s)

    def _worked(self, name: str, now: float) -> float:
        """A node has its verdict; return how long it took, without what is excused."""
        idle_s = abs(self._idle_s - self._asked[name][2]) if name in self._asked else 0
        return self._settled(name, now) - idle_s

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

    def ran(self, vm: Place, now: float) -> None:
        """A VM runs."""
        self._ran[vm] = now

    def listed(self, vms: Mapping[Place, str], asked: float, now: float) -> None:
        """The daemon has a list of VMs and their status, asked for at that time."""
        self._known.update(dict.fromkeys(vms, asked))
        for vm in (vm for vm, status in vms.items() if status == "RUNNING"):
            self._told.setdefault(vm, now)
        coming = (vm for vm, status in vms.items() if status == "STAGING")
        self._coming.update(dict.fromkeys(coming, asked))

    def inserts(self, names: Iterable[str], now: float) -> None:
        """The daemon sends an insert: the nodes have no VM, or it has been deleted.

        Lists may lack a VM for a while. Which they have lacked for `missing_s` is gone, to a daemon
        that can't read it by its name in time.
        """
        for name in names:
            for vm in self._works:
                if vm[0] == name and now - self._known.get(vm, -math.inf) <= self.missing_s:
                    self.wrong.append(f"{name} has a VM in {vm[1]} and gets another one")

    def made_by_hand(self, vm: Place, *, labelled: bool) -> None:
        """Somebody made a VM with a node's name, on which no slurmd runs."""
        if labelled:
            self._there.add(vm)
        else:
            self._foreign.add(vm)

    def stopped(self, vm: Place) -> None:
        """A VM has stopped, or is about to."""
        self._works.pop(vm, None)

    def gone(self, vm: Place) -> None:
        """A VM's record is gone."""
        self.stopped(vm)
        self._there.discard(vm)

    def deleted(self, vm: Place, *, works: bool, meant: str = "", unnoticed: bool = False) -> None:
        """A deletion was accepted; `works`: a node in service is on that VM.

        `meant`: the id of the VM that was to be deleted, where it is known. `unnoticed` is an
        excuse: the daemon can't know yet that SLURM asks for the node, as its states are from
        before and not stale, and the request is late or lost.
        """
        name, zone, vm_id = vm
        if works and vm not in self._mistaken:
            self.wrong.append(f"{name} is in service and its VM in {zone} is deleted")
        elif meant and meant != vm_id:
            self.wrong.append(f"{name}: a later VM in {zone} is deleted than was meant")
        elif vm in self._foreign:
            self.wrong.append(f"{name} in {zone} is not the cluster's, and is deleted")
        elif (
            name in self._asked
            and self._is_accepted(vm)
            and not self._seems_older(vm)
            and not unnoticed
        ):
            self.wrong.append(f"SLURM waits for {name} and its new VM in {zone} is deleted")

    def _is_accepted(self, vm: Place) -> bool:
        """Whether slurmctld accepts a VM's registration: it was made, or runs, since it asked."""
        if vm not in self._works:
            return False
        return max(self._works[vm], self._ran.get(vm, 0)) >= self._resumed[vm[0]]

    def _seems_older(self, vm: Place) -> bool:
        """Whether a VM that runs counts as one that ran before SLURM asked, though it did not.

        It came later than `runs_s`, and no list of this daemon had it as coming since. That is an
        excuse: the daemon before may have known, and nothing else says when a VM began to run. Its
        node has another VM soon; if one that did run before stayed, it would wait for nothing.
        """
        seen = self._coming.get(vm, self._works[vm])
        return vm in self._ran and seen + self.runs_s <= self._resumed[vm[0]]

    # --- the end

    def end(self, now: float) -> list[str]:
        """What is wrong, when nothing is left to do."""
        self.waits(now)
        self.wrong += [f"{name} has no verdict in the end" for name in sorted(self._asked)]
        self.wrong += [f"{name} in {zone} is left over" for name, zone, _ in sorted(self._there)]
        return self.wrong
