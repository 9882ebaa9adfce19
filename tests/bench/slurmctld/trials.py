"""What record_slurmctld.py does inside its container: a real slurmctld, and VMs that are processes.

Standard library only: it runs with the Python of the distribution. `trials.py vm NODE SECONDS` is a
VM: a slurmd in its own process and time namespace, whose uptime began SECONDS after the machine's.
`trials.py GROUP` plays a group of trials at one slurmctld, and prints their events as JSON.

All times are seconds of CLOCK_BOOTTIME, which no step of the system clock changes.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

STATE = Path("/var/bench")
CALLS, ENDED, CLOCK = STATE / "calls", STATE / "ended", STATE / "clock"
POLL_S = 0.2
ANSWER_S = 1.5
"""A slurmctld that is stopped answers nothing."""
LONGEST_S = 200.0
KERNEL_S, SLURMD_S = 2.5, 4.0
"""From a call of ResumeProgram to the VM's kernel, and to its slurmd. Both sides of slurmctld's
comparison are whole seconds: it refuses some VMs that boot less than a second after the call."""
AWAY_AT_S = 45.0
"""From the begin of a group to the moment when slurmctld goes away."""
FAKETIME = {
    "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "FAKETIME_TIMESTAMP_FILE": str(CLOCK),
    "FAKETIME_NO_CACHE": "1",
    "DONT_FAKE_MONOTONIC": "1",
}
Event = dict[str, Any]


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def run(*command: str, seconds: float = 30) -> str:
    """Run a command and return its output.

    Raises:
        subprocess.SubprocessError: it fails, or takes longer than `seconds`.

    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    return done.stdout


# --- a VM


def be_vm(node: str, booted: float) -> None:
    """Be a VM: slurmd, and an init that outlives none of its processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_time, new_pid, new_mounts = 0x80, 0x20000000, 0x20000
    if libc.unshare(new_time | new_pid | new_mounts):
        raise OSError(ctypes.get_errno(), "unshare")
    nanoseconds = -int(booted * 1e9)
    offset = f"boottime {nanoseconds // 10**9} {nanoseconds % 10**9}\n"
    Path("/proc/self/timens_offsets").write_text(offset)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    (STATE / "spool" / node).mkdir(parents=True, exist_ok=True)
    with (STATE / f"{node}.err").open("a") as said:
        subprocess.Popen(["slurmd", "-D", "-N", node], stdout=said, stderr=said)
    with suppress(ChildProcessError):
        while True:
            os.wait()


# --- slurmctld


class Lab:
    """A slurmctld without an earlier state, and what happens at it."""

    def __init__(self, *, fake_clock: bool) -> None:
        self.environment = {**os.environ, **(FAKETIME if fake_clock else {})}
        self.trials: dict[str, Trial] = {}
        """Node -> its trial."""
        self.jobs: dict[str, tuple[Trial, int]] = {}
        """SLURM's id -> the trial, and the job's number in it."""
        self.states: dict[str, str] = {}
        self.job_states: dict[str, str] = {}
        self.calls = 0
        self.over = threading.Event()
        run("rm", "-rf", *map(str, STATE.glob("*")))
        for name in ("state", "spool", "ended"):
            (STATE / name).mkdir(parents=True)
        CLOCK.write_text("+0\n")
        self.start()
        names = run("sinfo", "--noheader", "--Node", "--partition=all", "--format=%N").split()
        self.free = iter(names)
        self.began = clock()
        self.poller = threading.Thread(target=self.poll, daemon=True)
        self.poller.start()

    def start(self) -> None:
        with (STATE / "slurmctld.err").open("a") as said:
            self.process = subprocess.Popen(
                ["slurmctld", "-D"], stdout=said, stderr=said, env=self.environment
            )
        end = clock() + 30
        while clock() < end:
            with suppress(subprocess.SubprocessError):
                if " UP" in run("scontrol", "ping", seconds=ANSWER_S):
                    return
            time.sleep(0.1)
        sys.exit(f"slurmctld does not start: {(STATE / 'slurmctld.err').read_text()[-2000:]}")

    def end(self) -> None:
        self.over.set()
        self.poller.join()
        for trial in set(self.trials.values()):
            for node in list(trial.vms):
                trial.end_vm(node)
        self.process.kill()
        self.process.wait()

    def poll(self) -> None:
        while not self.over.wait(POLL_S):
            with suppress(subprocess.SubprocessError):
                self.read_nodes()
                self.read_jobs()
            self.read_calls()

    def read_nodes(self) -> None:
        shown = run("scontrol", "--oneliner", "show", "node", seconds=ANSWER_S)
        now = clock()
        for line in shown.splitlines():
            found = re.match(r"NodeName=(\S+) .* State=(\S+)", line)
            trial = self.trials.get(found[1]) if found else None
            if not found or not trial:
                continue
            reason = re.search(r" Reason=(.*?) \[", line)
            text = f"{found[2]} {reason[1] if reason else ''}".strip()
            if text != self.states.get(found[1]):
                self.states[found[1]] = text
                state, _, said = text.partition(" ")
                more = {"reason": said} if said else {}
                trial.note(at=now, node=trial.nodes.index(found[1]), state=state, **more)

    def read_jobs(self) -> None:
        shown = run("squeue", "--noheader", "--format=%A|%T|%r", seconds=ANSWER_S)
        now = clock()
        there = dict(line.split("|", 1) for line in shown.splitlines())
        for job, (trial, number) in list(self.jobs.items()):
            text = there.get(job, "GONE|")
            if text != self.job_states.get(job):
                self.job_states[job] = text
                state, _, reason = text.partition("|")
                more = {"reason": reason} if state == "PENDING" else {}
                trial.note(at=now, job=number, state=state, **more)

    def read_calls(self) -> None:
        lines = CALLS.read_text().splitlines() if CALLS.exists() else []
        for line in lines[self.calls :]:
            at, program, hosts = line.split()
            for node in run("scontrol", "show", "hostnames", hosts).split():
                trial = self.trials.get(node)
                if trial:
                    trial.note(at=float(at), node=trial.nodes.index(node), called=program)
        self.calls = len(lines)


class Trial:
    """Some nodes, what is done to them, and what happens then."""

    def __init__(self, lab: Lab, size: int = 1) -> None:
        self.lab = lab
        self.nodes = [next(lab.free) for _ in range(size)]
        self.events: list[Event] = []
        self.ids: list[str] = []
        self.vms: dict[str, subprocess.Popen[bytes]] = {}
        self.seen = 0
        """How many events were waited for, or were before these."""
        self.over = False
        self.lock = threading.Lock()
        for node in self.nodes:
            lab.trials[node] = self

    def note(self, *, at: float, **what: object) -> None:
        with self.lock:
            if not self.over:
                self.events.append({"at": at, **what})

    # --- what is done

    def do(self, what: str, **more: object) -> None:
        with self.lock:
            self.events.append({"at": clock(), "did": what, **more})
            self.seen = len(self.events)

    def submit(self) -> int:
        """Submit a job for all nodes, which runs until `end_job`; return its number."""
        script = f"until [ -e {ENDED}/$SLURM_JOB_ID ]; do sleep 0.1; done"
        words = ["--parsable", "--exclusive", "--output=/dev/null", f"--wrap={script}"]
        nodes = [f"--nodes={len(self.nodes)}", f"--nodelist={','.join(self.nodes)}"]
        number = len(self.ids)
        self.do("submit", job=number)
        self.ids.append(run("sbatch", *nodes, *words).strip())
        self.lab.jobs[self.ids[-1]] = self, number
        return number

    def end_job(self, number: int = 0) -> None:
        """Let a job end, or end at once when it starts."""
        self.do("end", job=number)
        (ENDED / self.ids[number]).touch()

    def set_down(self, node: int = 0) -> None:
        """Set a node DOWN."""
        self.do("down", node=node)
        words = [f"nodename={self.nodes[node]}", "state=down", "reason=muster: trial"]
        run("scontrol", "update", *words)

    def release(self, node: int = 0) -> None:
        """Release a node as Muster does."""
        self.do("release", node=node)
        words = [f"nodename={self.nodes[node]}", "state=power_down_force", "reason=muster: trial"]
        run("scontrol", "update", *words)

    def boot(self, node: int = 0, *, booted: float | None = None) -> None:
        """Start slurmd on a VM, whose kernel started at `booted`."""
        booted = clock() + KERNEL_S - SLURMD_S if booted is None else booted
        self.do("boot", node=node, booted=booted)
        self.start_vm(node, booted)

    def start_vm(self, node: int, booted: float) -> None:
        name = self.nodes[node]
        words = [sys.executable, __file__, "vm", name, repr(booted)]
        self.vms[name] = subprocess.Popen(words, start_new_session=True)

    def power_off(self, node: int = 0) -> None:
        """Delete a VM."""
        self.do("delete", node=node)
        self.end_vm(self.nodes[node])

    def end_vm(self, name: str) -> None:
        vm = self.vms.pop(name)
        vm.kill()
        vm.wait()

    # --- what happens then

    def until(
        self, happens: Callable[[Event], bool], what: str, seconds: float = LONGEST_S
    ) -> Event:
        """Wait for an event that is later than what was done or waited for before; return it."""
        end = clock() + seconds
        while clock() < end:
            with self.lock:
                for number, event in enumerate(self.events):
                    if number >= self.seen and happens(event):
                        self.seen = number + 1
                        return event
            time.sleep(0.05)
        self.note(at=clock(), missed=what)
        raise TimeoutError(what)

    def until_called(self, program: str, node: int = 0) -> float:
        """Return when a program was called for a node."""
        event = self.until(
            lambda event: event.get("called") == program and event["node"] == node,
            f"{program} is called",
        )
        return float(event["at"])

    def until_node(self, *flags: str, node: int = 0) -> None:
        """Wait for a node's state that has all these words."""
        self.until(
            lambda event: (
                event.get("node") == node
                and set(flags) <= set(str(event.get("state")).rstrip("*").split("+"))
            ),
            "+".join(flags),
        )

    def until_job(self, state: str, job: int = 0) -> None:
        """Wait for a job's state."""
        self.until(
            lambda event: event.get("job") == job and event.get("state") == state,
            f"job {job} is {state}",
        )

    def until_after(self, seconds: float) -> None:
        """Wait until so long after the group's begin."""
        time.sleep(max(0, self.lab.began + seconds - clock()))

    def up(self) -> None:
        """Submit a job, boot its VMs, and wait until it runs."""
        self.submit()
        called = self.until_called("resume")
        time.sleep(max(0, called + SLURMD_S - clock()))
        for node in range(len(self.nodes)):
            self.boot(node)
        self.until_job("RUNNING")

    def powers_down(self) -> None:
        """Delete the VM when SuspendProgram is called, and wait until the node is powered down."""
        self.until_called("suspend")
        if self.vms:
            self.power_off()
        self.until_node("POWERED_DOWN")


# --- trials of their own


def job(trial: Trial) -> None:
    """A job powers a node up and ends; the node powers down."""
    trial.up()
    time.sleep(3)
    trial.end_job()
    trial.powers_down()


def second_job(trial: Trial) -> None:
    """A job for a node that is powering down."""
    trial.up()
    trial.end_job()
    trial.until_called("suspend")
    trial.power_off()
    trial.submit()
    trial.until_called("resume")


def booted(seconds: float) -> Callable[[Trial], None]:
    """A VM whose kernel started so long after ResumeProgram (before it, if negative)."""

    def play(trial: Trial) -> None:
        trial.submit()
        called = trial.until_called("resume")
        time.sleep(SLURMD_S)
        trial.boot(booted=called + seconds)
        with suppress(TimeoutError):
            trial.until(lambda event: event.get("state") == "RUNNING", "it runs", 12)

    return play


def release_powering_up(trial: Trial) -> None:
    """A node that a job waits for is released; the job runs again later."""
    trial.submit()
    trial.until_called("resume")
    time.sleep(3)
    trial.release()
    trial.until_called("suspend")
    trial.until_node("POWERED_DOWN")
    trial.until_called("resume")


def release_busy(trial: Trial) -> None:
    """A node in service with a job is released."""
    trial.up()
    time.sleep(2)
    trial.release()
    trial.powers_down()
    trial.until_called("resume")


def release_lost(trial: Trial) -> None:
    """A node whose VM is gone, with a job, is released."""
    trial.up()
    time.sleep(2)
    trial.power_off()
    time.sleep(2)
    trial.release()
    trial.until_called("suspend")
    trial.until_node("POWERED_DOWN")


def down_lost(trial: Trial) -> None:
    """The same, set DOWN first."""
    trial.up()
    time.sleep(2)
    trial.power_off()
    time.sleep(2)
    trial.set_down()
    trial.release()
    trial.until_called("suspend")
    trial.until_node("POWERED_DOWN")


def lost_down(trial: Trial) -> None:
    """The same, released first and set DOWN then."""
    trial.up()
    time.sleep(2)
    trial.power_off()
    time.sleep(2)
    trial.release()
    trial.set_down()
    trial.until_called("suspend")
    trial.until_node("POWERED_DOWN")


def release_idle(trial: Trial) -> None:
    """A node in service without a job is released."""
    trial.up()
    trial.end_job()
    trial.until_node("IDLE")
    trial.release()
    trial.powers_down()


def release_powered_down(trial: Trial) -> None:
    """A node that is powered down is released; then a job needs it."""
    trial.release()
    time.sleep(20)
    trial.submit()
    called = trial.until_called("resume")
    time.sleep(max(0, called + SLURMD_S - clock()))
    trial.boot()
    trial.until_job("RUNNING")
    time.sleep(5)
    trial.end_job()
    trial.powers_down()


def release_powering_down(trial: Trial) -> None:
    """A node that is powering down is released."""
    trial.up()
    trial.end_job()
    trial.until_called("suspend")
    trial.power_off()
    time.sleep(3)
    trial.release()
    trial.until_node("POWERED_DOWN")


def release_one_powering_up(trial: Trial) -> None:
    """One of two nodes is released while a job waits for both; the other one registers."""
    trial.submit()
    trial.until_called("resume", 1)
    time.sleep(2)
    trial.release(0)
    time.sleep(2)
    trial.boot(1)
    trial.until_called("suspend", 1)
    trial.power_off(1)
    trial.until_node("POWERED_DOWN", node=1)


def release_one_busy(trial: Trial) -> None:
    """One of two nodes of a running job is released."""
    trial.up()
    time.sleep(8)
    trial.release(0)
    trial.until_called("suspend", 1)
    trial.power_off(1)
    trial.power_off(0)
    trial.until_node("POWERED_DOWN", node=1)


def resume_timeout(trial: Trial) -> None:
    """No VM comes, and the node is left as it is."""
    trial.submit()
    trial.until_called("resume")
    trial.until_called("resume-failed")
    time.sleep(130)


def resume_timeout_released(trial: Trial) -> None:
    """The same, and the node is released after it."""
    trial.submit()
    trial.until_called("resume")
    trial.until_called("resume-failed")
    time.sleep(3)
    trial.release()
    trial.until_called("resume")


def late(trial: Trial) -> None:
    """A VM comes after ResumeTimeout."""
    trial.submit()
    called = trial.until_called("resume")
    trial.until_called("resume-failed")
    time.sleep(5)
    trial.boot(booted=called + 30)
    time.sleep(30)


def stray_powering_down(trial: Trial) -> None:
    """A node is released while it powers up; its VM comes while it powers down."""
    trial.submit()
    trial.until_called("resume")
    trial.release()
    trial.until_called("suspend")
    time.sleep(3)
    trial.boot()
    time.sleep(30)


def stray_powered_down(trial: Trial) -> None:
    """A VM of a node that is powered down comes."""
    trial.boot()
    time.sleep(30)


ALONE = {
    "job": (job, 1),
    "second job": (second_job, 1),
    "booted 5 s before": (booted(-5), 1),
    "booted 3 s before": (booted(-3), 1),
    "booted 2 s before": (booted(-2), 1),
    "booted 1.1 s before": (booted(-1.1), 1),
    "booted 1 s after": (booted(1), 1),
    "released while powering up": (release_powering_up, 1),
    "released with a job": (release_busy, 1),
    "released with a job, VM gone": (release_lost, 1),
    "set down and released with a job, VM gone": (down_lost, 1),
    "released and set down with a job, VM gone": (lost_down, 1),
    "released while idle": (release_idle, 1),
    "released while powered down": (release_powered_down, 1),
    "released while powering down": (release_powering_down, 1),
    "one of two released while powering up": (release_one_powering_up, 2),
    "one of two released with a job": (release_one_busy, 2),
    "ResumeTimeout": (resume_timeout, 1),
    "ResumeTimeout, then released": (resume_timeout_released, 1),
    "late VM": (late, 1),
    "stray VM while powering down": (stray_powering_down, 1),
    "stray VM while powered down": (stray_powered_down, 1),
}

# --- trials around a slurmctld that goes away, or whose clock is set


def waits(trial: Trial) -> None:
    """A node powers up, and no VM comes."""
    trial.until_after(AWAY_AT_S - 12)
    trial.submit()
    trial.until_called("resume")
    trial.until_called("resume-failed")


def boots(trial: Trial) -> None:
    """A node powers up, and its VM comes soon after the event."""
    trial.until_after(AWAY_AT_S - 12)
    trial.submit()
    trial.until_called("resume")
    trial.until_after(AWAY_AT_S + 5)
    trial.boot()
    trial.until(
        lambda event: event.get("state") == "RUNNING" or "called" in event, "it is accepted or not"
    )


def just_asked(trial: Trial) -> None:
    """A job is submitted shortly before the event, and its VM comes; perhaps the job is lost."""
    trial.until_after(AWAY_AT_S - 2.5)
    trial.submit()
    called = trial.until_called("resume")
    time.sleep(max(0, called + SLURMD_S - clock()))
    trial.boot()
    trial.until(
        lambda event: (
            event.get("state") in {"RUNNING", "GONE"} or event.get("called") == "resume-failed"
        ),
        "its job runs or is lost",
    )
    time.sleep(40)


def idle(trial: Trial) -> None:
    """A node is idle since 3 s before the event."""
    trial.up()
    trial.until_after(AWAY_AT_S - 3)
    trial.end_job()
    trial.powers_down()


def falls(trial: Trial) -> None:
    """A node powers down since 8 s before the event."""
    trial.up()
    trial.until_after(AWAY_AT_S - 10)
    trial.end_job()
    trial.until_after(AWAY_AT_S - 8)
    trial.release()
    trial.powers_down()


def works(trial: Trial) -> None:
    """A job runs, and ends some seconds after the event."""
    trial.up()
    trial.until_after(AWAY_AT_S + 8)
    trial.end_job()
    trial.powers_down()


AROUND = {
    "no VM comes": waits,
    "its VM comes": boots,
    "just asked for": just_asked,
    "idle": idle,
    "powers down": falls,
    "its job ends": works,
}


def ended(number: int) -> Callable[[Lab, float], Iterator[str]]:
    """slurmctld gets a signal that ends it, and is started later."""

    def happens(lab: Lab, seconds: float) -> Iterator[str]:
        lab.process.send_signal(number)
        yield "away"
        time.sleep(seconds)
        lab.process.wait()
        lab.start()
        yield "back"

    return happens


def stopped(lab: Lab, seconds: float) -> Iterator[str]:
    lab.process.send_signal(signal.SIGSTOP)
    yield "away"
    time.sleep(seconds)
    lab.process.send_signal(signal.SIGCONT)
    yield "back"


def stepped(_lab: Lab, seconds: float) -> Iterator[str]:
    CLOCK.write_text(f"{seconds:+.0f}s\n")
    yield "step"


GROUPS: dict[str, tuple[Callable[[Lab, float], Iterator[str]], float]] = {
    "shut down for 20 s": (ended(signal.SIGTERM), 20),
    "killed for 20 s": (ended(signal.SIGKILL), 20),
    "killed for 50 s": (ended(signal.SIGKILL), 50),
    "stopped for 20 s": (stopped, 20),
    "clock 60 s forward": (stepped, 60),
    "clock 60 s back": (stepped, -60),
}


def tried(what: Callable[[Trial], None], trial: Trial) -> None:
    """Play a trial; its events have what did not happen in time."""
    with suppress(TimeoutError):
        what(trial)
    trial.over = True


def play(group: str) -> dict[str, list[Event]]:
    """Play a group's trials, all at the same time; return the events of each."""
    lab = Lab(fake_clock=group.startswith("clock"))
    trials: dict[str, Trial] = {}
    threads = []
    wanted = ALONE if group == "alone" else {name: (what, 1) for name, what in AROUND.items()}
    for name, (what, size) in wanted.items():
        trials[name] = Trial(lab, size)
        threads.append(threading.Thread(target=tried, args=(what, trials[name])))
        threads[-1].start()
        time.sleep(0.3)
    if group in GROUPS:
        happens, seconds = GROUPS[group]
        time.sleep(max(0, lab.began + AWAY_AT_S - clock()))
        for did in happens(lab, seconds):
            for trial in trials.values():
                more = {"seconds": seconds} if did == "step" else {}
                trial.note(at=clock(), did=did, **more)
    for thread in threads:
        thread.join()
    if lab.process.poll() is not None:
        sys.exit(f"slurmctld ended with {lab.process.returncode}")
    lab.end()
    return {
        name: sorted(trial.events, key=lambda event: event["at"]) for name, trial in trials.items()
    }


if __name__ == "__main__":
    if sys.argv[1] == "vm":
        be_vm(sys.argv[2], float(sys.argv[3]))
    else:
        print(json.dumps(play(sys.argv[1])))
